// `svc index`: queries, registrations and a simulated engine from a terminal.
import { Failure, fail } from "@svc/contract/failures.ts";
import { ask } from "./ask.ts";
import { simulate } from "./simulate.ts";

const usage = `svc index: queries a cache indexer, registers publishers, and simulates engines.

  svc index query --model M --block-size N (--tokens 1,2,3 | --file TOKENS.json | --hashes H1,H2)
                  [--tenant T] [--instance I] [--lora-name L] [--cache-salt S] [--explain]
  svc index register --endpoint tcp://HOST:PORT --type vLLM|SGLang|Mooncake --model M --instance I
                  --block-size N --dp-rank R [--replay-endpoint E] [--tenant T] [--lora-name L] [--additional-salt S]
  svc index unregister --instance I --dp-rank R [--tenant T]
  svc index services
  svc index simulate --model M --instance I [--block-size N] [--trace FILE] [--help]

  --url URL       the indexer (default $SVC_INDEXER_URL, else http://localhost:13333)
  --api-key KEY   for register and unregister, if indexer.api_key is set (default $SVC_INDEXER_API_KEY)
  --output json   JSON instead of a table; the default in a pipe
`;

export async function main(argv: readonly string[]): Promise<number> {
  const [verb = "help", ...rest] = argv;
  try {
    switch (verb) {
      case "query":
      case "register":
      case "unregister":
      case "services":
        if (rest.includes("--help") || rest.includes("-h")) break;
        return await ask(verb, rest);
      case "simulate":
        return await simulate(rest);
      case "help":
      case "--help":
      case "-h":
        break;
      default:
        fail("INVALID_REQUEST", `expected query, register, unregister, services or simulate, got ${JSON.stringify(verb)}; \`svc index --help\` explains them`);
    }
    process.stdout.write(usage);
    return 0;
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    process.stderr.write(`svc index: ${error.message}\n`);
    return error.name === "INVALID_REQUEST" ? 2 : 1;
  }
}

if (process.argv[1] === import.meta.filename) process.exitCode = await main(process.argv.slice(2));
