// `svc index simulate`: an engine that replays a trace, publishes its KV events and answers replay requests.
import { statSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import { fail } from "@svc/contract/failures.ts";
import { IndexClient, openHasher } from "@svc/contract/index-client.ts";
import { SimulatedEngine } from "../simulate/engine.ts";
import { makeConversations, readTrace, type TracedPrompt } from "../simulate/trace.ts";
import { indexerURL } from "./address.ts";

const options = {
  url: { type: "string" },
  model: { type: "string" },
  instance: { type: "string" },
  "no-register": { type: "boolean" },
  "block-size": { type: "string", default: "16" },
  capacity: { type: "string", default: "100000" },
  host: { type: "string", default: "127.0.0.1" },
  port: { type: "string", default: "0" },
  "replay-port": { type: "string", default: "0" },
  trace: { type: "string" },
  prompts: { type: "string", default: "1000" },
  seed: { type: "string", default: "1" },
  speed: { type: "string", default: "0" },
  drop: { type: "string", default: "0" },
  stay: { type: "boolean" },
} as const;

/** The number of batches kept for replays, the engines' default. */
const BUFFER_BATCHES = 10_000;

export async function simulate(argv: readonly string[]): Promise<number> {
  const values = read(argv);
  const number = (name: "block-size" | "capacity" | "port" | "replay-port" | "prompts" | "seed" | "speed" | "drop") => {
    const value = Number(values[name]);
    return Number.isFinite(value) && value >= 0 ? value : fail("INVALID_REQUEST", `--${name}: expected a number, got ${JSON.stringify(values[name])}`);
  };
  const blockSize = number("block-size");
  if (values.trace !== undefined && statSync(values.trace, { throwIfNoEntry: false })?.isFile() !== true)
    fail("INVALID_REQUEST", `--trace: expected a file of prompts, got ${JSON.stringify(values.trace)}, which is not one`);
  const engine = new SimulatedEngine({
    blockSize,
    capacityBlocks: number("capacity"),
    host: values.host,
    port: number("port"),
    replayPort: number("replay-port"),
    bufferBatches: BUFFER_BATCHES,
    rank: 0,
    hash: await openHasher(),
  });
  await engine.start();
  process.stdout.write(`publishing at ${engine.endpoint}, replaying at ${engine.replayEndpoint}\n`);
  const stopped = new Promise<void>((resolve) => void process.once("SIGINT", resolve).once("SIGTERM", resolve));
  if (values["no-register"] !== true) await registerAt(values, engine, blockSize);
  const drop = number("drop");
  const shape = { prompts: number("prompts"), systemPrompts: 8, systemTokens: 1024, turnTokens: 256, turns: 6, seed: number("seed") };
  const prompts: AsyncIterable<TracedPrompt> | Iterable<TracedPrompt> = values.trace === undefined ? makeConversations(shape) : readTrace(values.trace);
  const speed = number("speed");
  const began = performance.now();
  const seen = { prompts: 0, blocks: 0, hits: 0 };
  let first: number | undefined;
  let stopping = false;
  void stopped.then(() => {
    stopping = true;
  });
  for await (const { atMs, tokens } of prompts) {
    if (stopping) break;
    first ??= atMs;
    if (speed > 0) await Promise.race([stopped, delay(Math.max(0, (atMs - first) / speed - (performance.now() - began)))]);
    seen.prompts++;
    seen.blocks += Math.floor(tokens.length / blockSize);
    seen.hits += await engine.run(tokens, drop > 0 && seen.prompts % drop === 0);
  }
  const rate = seen.blocks === 0 ? 0 : Math.round((100 * seen.hits) / seen.blocks);
  process.stdout.write(
    `${seen.prompts} prompts, ${seen.blocks} blocks, ${rate} % of them hit; ${engine.blocks.size} blocks cached, ${engine.batches} batches published\n`,
  );
  if (values.stay === true && !stopping) await stopped;
  await engine.close();
  return 0;
}

function read(argv: readonly string[]) {
  try {
    return parseArgs({ args: [...argv], options, allowPositionals: false }).values;
  } catch (error) {
    return fail("INVALID_REQUEST", `${(error as Error).message}; \`svc index simulate --help\` lists the flags`);
  }
}

async function registerAt(values: ReturnType<typeof read>, engine: SimulatedEngine, blockSize: number): Promise<void> {
  const url = indexerURL(values.url);
  const modelname = values.model ?? fail("INVALID_REQUEST", "--model is missing; give it, or use --no-register");
  const instance_id = values.instance ?? fail("INVALID_REQUEST", "--instance is missing; give it, or use --no-register");
  await new IndexClient(url, { apiKey: process.env["SVC_INDEXER_API_KEY"] }).register({
    endpoint: engine.endpoint,
    replay_endpoint: engine.replayEndpoint,
    type: "vLLM",
    modelname,
    instance_id,
    block_size: blockSize,
    dp_rank: 0,
  });
  process.stdout.write(`registered as ${instance_id} at ${url}\n`);
}
