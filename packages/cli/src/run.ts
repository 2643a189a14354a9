// Decides who answers a command line: a server by name, in this very process, or a verb of the client.
import { complain, EXIT_USAGE } from "./complain.ts";
import { findProgram, programFile } from "./programs.ts";

/** The exit code of the command line `argv`. */
export async function run(argv: readonly string[]): Promise<number> {
  const found = findProgram(argv);
  endQuietlyOnBrokenPipe(found?.program.inUp !== undefined);
  try {
    if (found === undefined) return await (await import("./verbs.ts")).runVerb(argv);
    const file = programFile(found.program);
    if (file === undefined) {
      process.stderr.write(`svc: ${found.program.name} is not part of this tree\n`);
      return EXIT_USAGE;
    }
    // A server that failed half-way may have parts open that would keep this process alive.
    return process.exit(await runProgram(file, found.rest));
  } catch (error) {
    return complain(error);
  }
}

async function runProgram(file: string, argv: string[]): Promise<number> {
  try {
    const { main } = (await import(file)) as { main: (argv: string[]) => Promise<number> };
    return await main(argv);
  } catch (error) {
    return complain(error);
  }
}

/** `svc list | head -1`: the reader has what it wanted, which is no error of ours. A server goes on also where its words find no room. */
function endQuietlyOnBrokenPipe(isServer: boolean): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", (error: NodeJS.ErrnoException) => {
      if (isServer && error.code === "ENOSPC") return;
      if (error.code === "EPIPE" || error.code === "EIO") process.exit(0);
      throw error;
    });
  }
}
