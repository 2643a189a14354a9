// Starts a real indexer as a separate process, and queries it over HTTP.
import { type ChildProcess, spawn } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { Freshness, QueryAnswer, RegistrationInput } from "@svc/contract/indexer.ts";
import { endWithUs } from "@svc/harness/children.ts";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { parseExact, writeExact } from "../src/http/exact-json.ts";

const MAIN = fileURLToPath(new URL("../src/main.ts", import.meta.url));
const READY_MS = 60_000;
const WAIT_MS = 60_000;

export type Service = {
  instance_id: string;
  tenant_id: string;
  dp_rank: number;
  freshness: Freshness;
  streams: { medium: string; blocks: number; digest: string }[];
  batches: Record<string, number>;
  events: Record<string, number>;
  parked: number;
  doctor: string[];
};

export type TestIndexer = {
  readonly url: string;
  readonly home: string;
  readonly pid: number;
  log(): string;
  post(path: string, body: unknown): Promise<{ status: number; body: unknown }>;
  get(path: string): Promise<unknown>;
  register(record: RegistrationInput): Promise<void>;
  query(body: Record<string, unknown>): Promise<QueryAnswer[string]>;
  services(): Promise<Service[]>;
  /** The faults that the indexer reports about itself. */
  doctor(): Promise<string>;
  /** Waits until this holds; the failure shows the last value seen. */
  until<T>(what: string, look: () => Promise<T>, holds: (seen: T) => boolean): Promise<T>;
  /** Waits until this many batches of an instance were taken in; `gap` is the expected state of the gap flag by then. */
  taken(instance: string, batches: number, gap?: boolean): Promise<Service>;
  kill(signal?: NodeJS.Signals): Promise<void>;
  start(flags?: readonly string[]): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** `home` belongs to the caller, who removes it; `launcher` is a command that starts the rest of its arguments. */
export type IndexerOptions = { readonly home?: string; readonly launcher?: readonly string[] };

export async function startIndexer(flags: readonly string[] = [], options: IndexerOptions = {}): Promise<TestIndexer> {
  const home = options.home ?? makeHome();
  let child: ChildProcess | undefined;
  let url = "";
  let logged = "";

  async function start(more: readonly string[] = []): Promise<void> {
    const args = [
      MAIN,
      "--listen=127.0.0.1:0",
      `--home=${home}`,
      "--indexer.snapshot_interval_seconds=0",
      "--indexer.replay_timeout_ms=20000",
      ...flags,
      ...more,
    ];
    const [command = "", ...rest] = [...(options.launcher ?? []), process.execPath, "--disable-warning=ExperimentalWarning", ...args];
    const started = spawn(command, rest, { stdio: ["ignore", "pipe", "pipe"] });
    endWithUs(started);
    child = started;
    started.stderr?.on("data", (chunk: Buffer) => {
      logged = (logged + chunk.toString()).slice(-50_000);
    });
    url = await new Promise<string>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`the indexer was not ready: ${logged}`)), READY_MS);
      let out = "";
      started.stdout?.on("data", (chunk: Buffer) => {
        out += chunk.toString();
        // With certificates a port may take plain clients, too, as the tests are.
        const found = /ready at (https?:\S+)/.exec(out)?.[1]?.replace("https:", "http:");
        if (found === undefined) return;
        clearTimeout(timer);
        resolve(found.replace("localhost", "127.0.0.1"));
      });
      started.once("exit", (code) => {
        clearTimeout(timer);
        reject(new Error(`the indexer ended with ${code}: ${logged}`));
      });
    });
  }

  async function kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const ending = child;
    if (ending === undefined || ending.exitCode !== null || ending.signalCode !== null) return;
    const ended = new Promise((resolve) => ending.once("exit", resolve));
    ending.kill(signal);
    await ended;
  }

  async function until<T>(what: string, look: () => Promise<T>, holds: (seen: T) => boolean): Promise<T> {
    const deadline = performance.now() + WAIT_MS;
    for (;;) {
      const seen = await look();
      if (holds(seen)) return seen;
      if (performance.now() > deadline) throw new Error(`not so within ${WAIT_MS} ms: ${what}; last seen: ${writeExact(seen, true)}\n${logged.slice(-3000)}`);
      await delay(20);
    }
  }

  await start();
  const indexer: TestIndexer = {
    home,
    get url() {
      return url;
    },
    get pid() {
      return child?.pid ?? 0;
    },
    log: () => logged,
    async post(path, body) {
      const response = await fetch(url + path, {
        method: "POST",
        body: typeof body === "string" ? body : writeExact(body, false),
        headers: { "content-type": "application/json" },
      });
      return { status: response.status, body: parseExact(await response.text()) };
    },
    async get(path) {
      return parseExact(await (await fetch(url + path)).text());
    },
    async register(record) {
      const { status, body } = await indexer.post("/register", record);
      if (status !== 200) throw new Error(`register: ${status} ${JSON.stringify(body)}`);
    },
    async query(body) {
      const answer = await indexer.post("seq_hashes" in body ? "/query_by_hash" : "/query", body);
      if (answer.status !== 200) throw new Error(`query: ${answer.status} ${JSON.stringify(answer.body)}`);
      const tenant = (body["tenant_id"] as string | undefined) ?? "default";
      return (answer.body as QueryAnswer)[tenant] ?? {};
    },
    async services() {
      return ((await indexer.get("/services")) as { services: Service[] }).services;
    },
    async doctor() {
      return ((await indexer.get("/services")) as { doctor: string[] }).doctor.join("\n");
    },
    until,
    async taken(instance, batches, gap = false) {
      const find = async () => (await indexer.services()).find(({ instance_id }) => instance_id === instance);
      const seen = await until(
        `${instance} has taken ${batches} batches in`,
        find,
        (service) => (service?.freshness.last_sequence ?? -1) >= batches - 1 && service?.freshness.gap === gap,
      );
      if (seen === undefined) throw new Error("no such instance");
      return seen;
    },
    kill,
    start,
    async [Symbol.asyncDispose]() {
      await kill("SIGTERM");
      if (options.home === undefined) removeHome(home);
    },
  };
  return indexer;
}

/** Waits until the freshness of the first service satisfies `holds`. */
export async function seen(indexer: TestIndexer, what: string, holds: (freshness: Freshness) => boolean): Promise<Service> {
  const [service] = await indexer.until(
    what,
    () => indexer.services(),
    ([one]) => one !== undefined && holds(one.freshness),
  );
  return service as Service;
}

/** Returns which of these hashes instance `pool` has in its CPU tier, as prompts of one block of model `m`. */
export async function cachedOf(indexer: TestIndexer, hashes: readonly number[]): Promise<number[]> {
  const held: number[] = [];
  for (const hash of hashes) {
    const { body } = await indexer.post("/query_by_hash", { model: "m", block_size: 4, seq_hashes: [hash] });
    if (((body as QueryAnswer)["default"]?.["pool"]?.CPU ?? 0) > 0) held.push(hash);
  }
  return held;
}
