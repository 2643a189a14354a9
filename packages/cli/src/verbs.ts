// All verbs of the client, their help, and the handling of wrong command lines.
import { hasBytes, shownText } from "@svc/contract/byte-text.ts";
import { CommanderError } from "commander";
import { complain, EXIT_USAGE, UsageError } from "./output/complain.ts";
import { programsHere } from "./servers/programs.ts";
import { version } from "./shell/version.ts";
import { addExposeVerbs } from "./verbs/expose.ts";
import { addKeyVerbs, addTenantVerbs } from "./verbs/keys.ts";
import { addLifeVerbs } from "./verbs/life.ts";
import { addNodeVerbs } from "./verbs/nodes.ts";
import { addObserveVerbs } from "./verbs/observe.ts";
import { addFileVerbs, addSandboxVerbs } from "./verbs/sandbox.ts";
import { addSecretVerbs } from "./verbs/secret.ts";
import { addServerVerbs } from "./verbs/server.ts";
import { addShellVerbs } from "./verbs/shell.ts";
import { addTemplateVerbs } from "./verbs/template.ts";
import { Verb } from "./verbs/verb.ts";
import { addVolumeVerbs } from "./verbs/volume.ts";

/** Builds the command line with all verbs of the client. */
export function verbs(): Verb {
  const program = new Verb("svc")
    .description("The serving stack for LLM agents: sandboxes from a terminal, and the servers behind them.")
    .usage("VERB [options]")
    .version(version(), "-V, --version", "show the version")
    .helpOption("-h, --help", "show this help")
    .helpCommand("help [verb]", "show the help of a verb")
    .showSuggestionAfterError()
    .enablePositionalOptions()
    .addHelpText("after", programsHelp);
  addSandboxVerbs(program);
  addLifeVerbs(program);
  addExposeVerbs(program);
  addFileVerbs(program);
  addObserveVerbs(program);
  addTemplateVerbs(program);
  addVolumeVerbs(program);
  addSecretVerbs(program);
  addKeyVerbs(program);
  addTenantVerbs(program);
  addNodeVerbs(program);
  addServerVerbs(program);
  addShellVerbs(program);
  return program;
}

/** Runs a client command and returns its exit code. */
export async function runVerb(argv: readonly string[]): Promise<number> {
  const program = verbs();
  try {
    if (argv.length === 0) program.help({ error: true });
    refuseBytes(argv);
    await program.parseAsync(withDashes(withPreset(withKnownHelp(program, argv))), { from: "user" });
    return program.exitCode;
  } catch (error) {
    if (!(error instanceof CommanderError)) {
      const code = complain(error);
      if (code === EXIT_USAGE) process.stderr.write((program.current ?? program).usageLines());
      return code;
    }
    if (error.exitCode === 0) return 0;
    const own = error.code === "commander.unknownCommand" && Object.hasOwn(elsewhere, argv[0] ?? "") ? elsewhere[argv[0] ?? ""] : undefined;
    if (own !== undefined) process.stderr.write(`(that is svc ${own})\n`);
    // Commander has already printed the error, or the whole help.
    if (error.code !== "commander.help") process.stderr.write((program.current ?? program).usageLines());
    return EXIT_USAGE;
  }
}

/** Lets `svc help NAME` report an unknown name as `svc NAME` does, instead of showing the help of everything. */
function withKnownHelp(program: Verb, argv: readonly string[]): readonly string[] {
  const [first, name] = argv;
  const isUnknown = first === "help" && name !== undefined && !program.commands.some((verb) => verb.name() === name || verb.aliases().includes(name));
  return isUnknown && name !== "help" ? [name] : argv;
}

/** The arguments of these verbs go to a kernel, which accepts any bytes; all others are sent as text. */
const TAKES_BYTES = new Set(["exec", "upload", "download", "run"]);

function refuseBytes(argv: readonly string[]): void {
  const word = TAKES_BYTES.has(argv[0] ?? "") ? undefined : argv.find(hasBytes);
  if (word !== undefined) throw new UsageError(`expected text in UTF-8, got bytes that are none: ${shownText(word)}`);
}

/** The names that other tools use for our verbs. */
const elsewhere: Readonly<Record<string, string>> = {
  create: "start",
  kill: "delete",
  stop: "pause, or svc delete",
  ps: "list",
  cp: "upload, or svc download",
  shell: "connect",
  ssh: "connect",
  build: "template build",
  stats: "metrics",
};

/** Options of `exec` whose value is the next word. */
const VALUED = new Set(["-u", "--user", "-w", "--cwd", "-e", "--env", "--timeout", "--url"]);

/** In `svc start --auto-pause base`, `base` is the template; `--auto-pause=files` says what to save. */
function withPreset(argv: readonly string[]): string[] {
  return argv.map((word) => (argv[0] === "start" && word === "--auto-pause" ? "--auto-pause=memory" : word));
}

/** `svc exec ID ls -l` means `svc exec ID -- ls -l`: everything after the command's first word belongs to the command. */
function withDashes(argv: readonly string[]): string[] {
  if (argv[0] !== "exec" || argv.includes("--")) return [...argv];
  let operands = 0;
  for (let index = 1; index < argv.length; index++) {
    const word = argv[index] ?? "";
    if (word.startsWith("-") && word !== "-") {
      if (VALUED.has(word)) index++;
      continue;
    }
    operands++;
    if (operands === 2) return [...argv.slice(0, index), "--", ...argv.slice(index)];
  }
  return [...argv];
}

function programsHelp(): string {
  const rows: [string, string][] = [
    ...programsHere().map(({ name, summary }): [string, string] => [name, summary]),
    ["setup, test, uninstall", "install what is missing, run the tests, remove what was installed (./svc only)"],
    ["release", "build the packs and the archive that others install (./svc only)"],
  ];
  const width = Math.max(...rows.map(([name]) => name.length));
  const lines = rows.map(([name, summary]) => `  ${name.padEnd(width)}  ${summary}`);
  return `
Servers and programs, each with its own --help:
${lines.join("\n")}

A first sandbox:
  svc up -d
  ID=$(svc start base -d)
  svc exec $ID -- python3 -c 'print(6*7)'
  svc delete $ID

Exit codes: 0 success, 1 failure, 2 usage error; exec and connect return the command's own.`;
}
