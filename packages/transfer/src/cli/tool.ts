// A command-line tool of the transfer engine: its verbs, its help and its exit code.
import { Failure } from "@svc/contract/failures.ts";
import { type HelpEntry, type HelpPage, renderHelp, usageOfPage } from "@svc/contract/help.ts";

const EXIT_USAGE = 2;

export type Tool = {
  readonly name: string;
  readonly about: string;
  readonly verbs: Readonly<Record<string, ToolVerb>>;
  /** Options of every verb. */
  readonly options: readonly HelpEntry[];
  run(verb: string, rest: readonly string[]): Promise<void>;
};

export type ToolVerb = {
  /** The arguments after the verb, as the usage line shows them. */
  readonly words: string;
  readonly does: string;
  readonly options?: readonly HelpEntry[];
  readonly example: string;
};

/** The page of one verb, else that of the tool. */
export function pageOf({ name, about, verbs, options }: Omit<Tool, "run">, verb: string | undefined): HelpPage {
  const one = verb !== undefined && Object.hasOwn(verbs, verb) ? verbs[verb] : undefined;
  if (one !== undefined)
    return {
      usage: [`svc ${name} ${verb} [options] ${one.words}`.trim()],
      about: one.does,
      options: [...(one.options ?? []), ...options],
      examples: [one.example],
    };
  return {
    usage: [`svc ${name} VERB [options]`],
    about,
    options,
    commands: Object.entries(verbs).map(([each, { words, does }]): HelpEntry => [`${each} ${words}`.trim(), does]),
    more: `svc ${name} VERB --help shows the options of a verb, and an example.`,
    examples: Object.values(verbs).map(({ example }) => example),
  };
}

/** The exit code: 0, 1 for a failure, 2 for words that are none of these. */
export async function runTool(tool: Tool, argv: readonly string[]): Promise<number> {
  const { name, verbs } = tool;
  const [verb = "help", ...rest] = argv;
  if (verb === "help" || argv.includes("--help") || argv.includes("-h")) {
    process.stdout.write(renderHelp(pageOf(tool, verb === "help" ? rest[0] : verb)));
    return argv.length === 0 ? EXIT_USAGE : 0;
  }
  if (!Object.hasOwn(verbs, verb)) {
    process.stderr.write(
      `svc ${name}: expected one of ${Object.keys(verbs).join(", ")}, got ${verb}\n${usageOfPage(pageOf(tool, undefined), `svc ${name} --help`)}`,
    );
    return EXIT_USAGE;
  }
  try {
    await tool.run(verb, rest);
    return 0;
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    process.stderr.write(`svc ${name} ${verb}: ${error.message}\n`);
    if (error.name !== "INVALID_REQUEST") return 1;
    process.stderr.write(usageOfPage(pageOf(tool, verb), `svc ${name} ${verb} --help`));
    return EXIT_USAGE;
  }
}
