// Decides who handles a command line: a server by name, in this process, or a verb of the client.
import { trustCaFile } from "./access/trust.ts";
import { complain, EXIT_USAGE } from "./output/complain.ts";
import { findProgram, programFile } from "./servers/programs.ts";

/** Runs the command line and returns its exit code. */
export async function run(given: readonly string[]): Promise<number> {
  const argv = withDeploymentFirst(withProgramHelp(given));
  const found = findProgram(argv);
  endQuietlyOnBrokenPipe(found?.program.inUp !== undefined);
  try {
    trustCaFile();
    if (found === undefined) return await (await import("./verbs.ts")).runVerb(argv);
    const file = programFile(found.program);
    if (file === undefined) {
      process.stderr.write(`svc: ${found.program.name} is not part of this tree\n`);
      return EXIT_USAGE;
    }
    // A server that failed during its start may have open handles that would keep this process alive.
    return process.exit(await runProgram(file, found.rest));
  } catch (error) {
    return complain(error);
  }
}

/** `svc help gateway` is `svc gateway --help`. The verbs of the client have their own help command. */
function withProgramHelp(argv: readonly string[]): readonly string[] {
  const [first, ...rest] = argv;
  return first === "help" && findProgram(rest) !== undefined ? [...rest, "--help"] : argv;
}

/** `svc doctor --json --deployment` is `svc doctor --deployment --json`: the flag selects the program. */
function withDeploymentFirst(argv: readonly string[]): readonly string[] {
  const flag = "--deployment";
  return argv[0] === "doctor" && argv.includes(flag) ? ["doctor", flag, ...argv.slice(1).filter((word) => word !== flag)] : argv;
}

async function runProgram(file: string, argv: string[]): Promise<number> {
  try {
    const { main } = (await import(file)) as { main: (argv: string[]) => Promise<number> };
    return await main(argv);
  } catch (error) {
    return complain(error);
  }
}

/** A closed reader is not an error (`svc list | head -1`). A server also continues when a full disk does not accept its output. */
function endQuietlyOnBrokenPipe(isServer: boolean): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", (error: NodeJS.ErrnoException) => {
      if (isServer && error.code === "ENOSPC") return;
      if (error.code === "EPIPE" || error.code === "EIO") process.exit(0);
      throw error;
    });
  }
}
