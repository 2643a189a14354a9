// The tools of the transfer engine: `svc transfer …` and `svc segment …`, which share no verb.
import { Failure } from "@svc/contract/failures.ts";
import { segment, segmentHelp } from "./segment.ts";
import { transfer, transferHelp } from "./transfer.ts";

const EXIT_USAGE = 2;
const segmentVerbs = new Set(["register", "mount", "show", "list"]);
const transferVerbs = new Set(["write", "read", "bench", "doctor", "serve"]);

/** The exit code: 0, 1 for a failure, 2 for words that are none of these. */
export async function main(argv: readonly string[]): Promise<number> {
  const [verb = "help", ...rest] = argv;
  if (verb === "help" || argv.includes("--help") || argv.includes("-h")) {
    process.stdout.write(`${transferHelp}\n\n${segmentHelp}\n`);
    return argv.length === 0 ? EXIT_USAGE : 0;
  }
  try {
    if (segmentVerbs.has(verb)) await segment(verb, rest);
    else if (transferVerbs.has(verb)) await transfer(verb, rest);
    else {
      process.stderr.write(
        `svc: there is no verb ${verb}; svc transfer has ${[...transferVerbs].join(", ")}, svc segment has ${[...segmentVerbs].join(", ")}\n`,
      );
      return EXIT_USAGE;
    }
    return 0;
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    process.stderr.write(`svc: ${error.message}\n`);
    return error.name === "INVALID_REQUEST" ? EXIT_USAGE : 1;
  }
}
