// A command-line tool of the transfer engine: its verbs, its help and its exit code.
import { Failure } from "@svc/contract/failures.ts";

const EXIT_USAGE = 2;

export type Tool = {
  readonly name: string;
  readonly help: string;
  readonly verbs: readonly string[];
  run(verb: string, rest: readonly string[]): Promise<void>;
};

/** Returns the exit code: 0, 1 for a failure, 2 for an unknown verb or missing arguments. */
export async function runTool({ name, help, verbs, run }: Tool, argv: readonly string[]): Promise<number> {
  const [verb = "help", ...rest] = argv;
  if (verb === "help" || argv.includes("--help") || argv.includes("-h")) {
    process.stdout.write(`${help}\n`);
    return argv.length === 0 ? EXIT_USAGE : 0;
  }
  if (!verbs.includes(verb)) {
    process.stderr.write(`svc ${name}: expected one of ${verbs.join(", ")}, got ${verb}; svc ${name} --help describes them\n`);
    return EXIT_USAGE;
  }
  try {
    await run(verb, rest);
    return 0;
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    process.stderr.write(`svc ${name} ${verb}: ${error.message}\n`);
    return error.name === "INVALID_REQUEST" ? EXIT_USAGE : 1;
  }
}
