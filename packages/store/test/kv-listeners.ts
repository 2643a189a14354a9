// Listeners to the master's KV events in tests: a plain subscriber, a relay that loses batches, and a real indexer.

import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { IndexClient } from "@svc/contract/index-client.ts";
import { sequenceFrame } from "@svc/contract/kv-event.ts";
import { endWithUs } from "@svc/harness/children.ts";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { until } from "@svc/harness/until.ts";
import { Unpackr } from "msgpackr";
import { Dealer, Publisher, Subscriber } from "zeromq";

const INDEXER = fileURLToPath(new URL("../../indexer/src/main.ts", import.meta.url));
const SIMULATOR = fileURLToPath(new URL("../../indexer/src/cli/main.ts", import.meta.url));
const unpackr = new Unpackr({ useRecords: false, mapsAsObjects: true, int64AsType: "bigint" });

export type EventMap = { [name: string]: unknown; event_id: number; event_type: string; object_key: string; seq_hashes: bigint[]; tenant_id: string };
export type SeenBatch = { readonly frames: number; readonly topic: string; readonly sequence: number; readonly payload: [number, EventMap[], number] };

/** Converts numbers to JavaScript numbers where they fit, and hashes always to bigints. */
export function readPayload(bytes: Buffer): [number, EventMap[], number] {
  const [ts, events, rank] = unpackr.unpack(bytes) as [number | bigint, EventMap[], number];
  const plain = events.map((event) => ({
    ...event,
    event_id: Number(event.event_id),
    timestamp: Number(event["timestamp"]),
    seq_hashes: event.seq_hashes.map((hash) => BigInt(hash)),
  }));
  return [Number(ts), plain, rank];
}

/** Records everything that is published, from its first moment on. */
export function subscribe(endpoint: string): { readonly batches: SeenBatch[]; events(): EventMap[] } & Disposable {
  const socket = new Subscriber({ linger: 0, receiveHighWaterMark: 0, reconnectInterval: 20 });
  const batches: SeenBatch[] = [];
  socket.subscribe("");
  socket.connect(endpoint);
  void (async () => {
    for await (const frames of socket)
      batches.push({
        frames: frames.length,
        topic: String(frames[0]),
        sequence: Number(frames[1]?.readBigUInt64BE()),
        payload: readPayload(frames[2] as Buffer),
      });
  })().catch((error: Error) => {
    // A closed socket ends the loop; a batch that cannot be read fails the test.
    if (!socket.closed) throw error;
  });
  return { batches, events: () => batches.flatMap((batch) => batch.payload[1]), [Symbol.dispose]: () => socket.close() };
}

/** Requests one replay like the engines' subscribers, and reads it as slowly as the caller does. */
export async function* replayed(endpoint: string, from: number): AsyncGenerator<{ sequence: number; events: EventMap[] }> {
  const socket = new Dealer({ linger: 0, receiveTimeout: 60_000, receiveHighWaterMark: 1 });
  socket.connect(endpoint);
  try {
    await socket.send(["", sequenceFrame(BigInt(from))]);
    for (;;) {
      const [, sequence, payload] = await socket.receive();
      const number = sequence?.readBigInt64BE() ?? -1n;
      if (number < 0) return;
      yield { sequence: Number(number), events: readPayload(payload as Buffer)[1] };
    }
  } finally {
    socket.close();
  }
}

export async function askReplay(endpoint: string, from: number): Promise<{ sequence: number; events: EventMap[] }[]> {
  const found: { sequence: number; events: EventMap[] }[] = [];
  for await (const batch of replayed(endpoint, from)) found.push(batch);
  return found;
}

/** Relays batches, and loses those that `loses` selects. */
export async function startRelay(source: string, bound: string, loses: (sequence: number) => boolean): Promise<Disposable> {
  const from = new Subscriber({ linger: 0, receiveHighWaterMark: 0, reconnectInterval: 20 });
  const to = new Publisher({ linger: 0, sendHighWaterMark: 0 });
  await to.bind(bound);
  from.subscribe("");
  from.connect(source);
  void (async () => {
    for await (const frames of from) if (!loses(Number(frames[1]?.readBigUInt64BE()))) await to.send(frames);
  })().catch((error: Error) => {
    if (!from.closed) throw error;
  });
  return {
    [Symbol.dispose]() {
      from.close();
      to.close();
    },
  };
}

export type Indexer = { readonly url: string; readonly client: IndexClient; holds(hash: bigint): Promise<boolean> } & AsyncDisposable;

export const MODEL = "model";
export const BLOCK = 16;

/** Starts an indexer that knows one store, as instance "pool". */
export async function startIndexer(endpoint: string, replayEndpoint: string, quietCheckMs = 1000): Promise<Indexer> {
  const home = makeHome();
  const flags = ["--listen=127.0.0.1:0", `--home=${home}`, "--indexer.snapshot_interval_seconds=0", `--indexer.quiet_check_ms=${quietCheckMs}`];
  const child = spawnNode([INDEXER, ...flags]);
  const url = await said(child, /ready at (http:\S+)/);
  const client = new IndexClient(url);
  const record = { endpoint, replay_endpoint: replayEndpoint, type: "svc", modelname: MODEL, instance_id: "pool", block_size: BLOCK, dp_rank: 0 };
  await client.register(record);
  return {
    url,
    client,
    async holds(hash) {
      const answer = await client.queryByHash(BigUint64Array.from([hash]), { model: MODEL, blockSize: BLOCK });
      return (answer["default"]?.["pool"]?.CPU ?? 0) > 0;
    },
    async [Symbol.asyncDispose]() {
      await ended(child);
      removeHome(home);
    },
  };
}

/** Starts an engine that ran the prompts of a trace, and keeps running. */
export async function startEngine(indexer: string, trace: string): Promise<AsyncDisposable> {
  const flags = [`--url=${indexer}`, `--model=${MODEL}`, "--instance=engine", `--block-size=${BLOCK}`, `--trace=${trace}`, "--stay"];
  const child = spawnNode([SIMULATOR, "simulate", ...flags]);
  await said(child, /(\d+) blocks cached/);
  return { [Symbol.asyncDispose]: () => ended(child) };
}

function spawnNode(args: readonly string[]): ChildProcess {
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", ...args], { stdio: ["ignore", "pipe", "inherit"] });
  endWithUs(child);
  return child;
}

async function said(child: ChildProcess, what: RegExp): Promise<string> {
  let text = "";
  child.stdout?.setEncoding("utf8").on("data", (chunk: string) => void (text += chunk));
  return until(`${what} is said`, () => {
    if (child.exitCode !== null) throw new Error(`it ended with ${child.exitCode}: ${text}`);
    return what.exec(text)?.[1];
  });
}

async function ended(child: ChildProcess): Promise<void> {
  const exit = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGKILL");
  await exit;
}

/** Endpoints below a folder, which no other process can use. */
export const endpointsIn = (home: string) => ({ live: `ipc://${join(home, "live.sock")}`, replay: `ipc://${join(home, "replay.sock")}` });
