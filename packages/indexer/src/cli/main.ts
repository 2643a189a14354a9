// `svc index`: queries, registrations and a simulated engine from a terminal.
import { Failure, fail } from "@svc/contract/failures.ts";
import { usageOfPage } from "@svc/contract/help.ts";
import { ask } from "./ask.ts";
import { helpOf, pageOf, verbNames } from "./help.ts";
import { simulate } from "./simulate.ts";

/** Returns the exit code: 0 success, 1 failure, 2 usage error. */
export async function main(argv: readonly string[]): Promise<number> {
  const [verb = "help", ...rest] = argv;
  if (verb.startsWith("-") ? verb === "--help" || verb === "-h" : verb === "help" || rest.includes("--help") || rest.includes("-h")) {
    process.stdout.write(helpOf(verb === "help" ? rest[0] : verb));
    return 0;
  }
  try {
    if (!verbNames.includes(verb)) fail("INVALID_REQUEST", `expected ${verbNames.slice(0, -1).join(", ")} or ${verbNames.at(-1)}, got ${JSON.stringify(verb)}`);
    return verb === "simulate" ? await simulate(rest) : await ask(verb as Parameters<typeof ask>[0], rest);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    process.stderr.write(`svc index: ${error.message}\n`);
    if (error.name !== "INVALID_REQUEST") return 1;
    process.stderr.write(usageOfPage(pageOf(verb), verbNames.includes(verb) ? `svc index ${verb} --help` : "svc index --help"));
    return 2;
  }
}

if (process.argv[1] === import.meta.filename) process.exitCode = await main(process.argv.slice(2));
