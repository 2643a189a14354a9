// Starts what a router stands between: engines as processes, an indexer, and the router itself.
import { type ChildProcess, spawn } from "node:child_process";
import { createServer } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { endWithUs } from "@svc/harness/children.ts";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { endProcess, type OpenServer, openServer } from "@svc/harness/server-process.ts";

const file = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const ENGINE = file("../../../docs/example-engine.ts");
const INDEXER = file("../../indexer/src/main.ts");
export const ROUTER = file("../src/main.ts");
/** At least ten times what anything here takes. */
const WAIT_MS = 60_000;

export type Seen = {
  requests: number;
  cancelled: number;
  tokenized: number;
  /** Calls of a render path, answered or not. */
  rendered: number;
  headers: Record<string, string>;
  paths: string[];
  running: number;
  waiting: number;
};
export type TestEngine = {
  readonly name: string;
  readonly url: string;
  seen(): Promise<Seen>;
  fault(mode: string, ms?: number): Promise<void>;
  kill(signal?: NodeJS.Signals): Promise<void>;
  /** Starts it again at the same address. */
  start(): Promise<void>;
} & AsyncDisposable;

export async function startEngine(name: string, flags: readonly string[] = []): Promise<TestEngine> {
  const [port = 0] = await freePorts(1);
  const url = `http://127.0.0.1:${port}`;
  let child: ChildProcess | undefined;
  const kill = async (signal: NodeJS.Signals = "SIGKILL") => {
    if (child !== undefined) await endProcess(child, signal);
  };
  const start = async () => {
    const started = spawn(process.execPath, [ENGINE, "--name", name, "--port", String(port), ...flags], { stdio: ["ignore", "pipe", "inherit"] });
    endWithUs(started);
    child = started;
    await new Promise<void>((resolve, reject) => {
      let out = "";
      started.stdout?.on("data", (chunk: Buffer) => {
        out += chunk.toString();
        if (out.includes("ready at")) resolve();
      });
      started.once("exit", (code) => reject(new Error(`the engine ${name} ended with ${code}`)));
    });
  };
  await start();
  return {
    name,
    url,
    kill,
    start,
    seen: async () => (await (await fetch(`${url}/seen`)).json()) as Seen,
    async fault(mode, ms = 0) {
      await (await fetch(`${url}/fault`, { method: "POST", body: JSON.stringify({ mode, ms }) })).text();
    },
    [Symbol.asyncDispose]: () => kill(),
  };
}

export async function openIndexer(): Promise<OpenServer> {
  const home = makeHome();
  const server = await openServer([INDEXER], [`--home=${home}`, "--indexer.silence_seconds=1"]);
  return {
    ...server,
    async [Symbol.asyncDispose]() {
      await server.kill("SIGKILL");
      removeHome(home);
    },
  };
}

export async function openRouter(engines: readonly { name: string; url: string }[], flags: readonly string[] = []): Promise<OpenServer> {
  const named = engines.map(({ name, url }) => `--engine=${name}=${url}`);
  return openServer(
    [ROUTER],
    [...named, "--router.poll_ms=100", "--router.tie_seconds=0", "--router.indexer_timeout_ms=5000", "--router.tokens_timeout_ms=10000", ...flags],
  );
}

export async function post(url: string, path: string, body: unknown, headers: Record<string, string> = {}) {
  const response = await fetch(url + path, {
    method: "POST",
    body: typeof body === "string" ? body : JSON.stringify(body),
    headers: { "content-type": "application/json", ...headers },
  });
  const text = await response.text();
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    json = undefined;
  }
  return { status: response.status, headers: response.headers, text, json: json as Answer };
}

/** The members that the tests read of any answer. */
export type Answer = {
  id: string;
  error: { code: string; message: string; type: string };
  usage: { prompt_tokens: number; prompt_tokens_details: { cached_tokens: number } };
  choices: { message: { content: string } }[];
  engine: string | null;
  considered: { engine: string; seconds?: number; expectedCachedTokens?: number; because: string }[];
  tokens: { from?: string; count?: number; reason?: string };
};

export const chat = (content: string, more: object = {}) => ({ model: "demo", messages: [{ role: "user", content }], ...more });

export async function until<T>(what: string, look: () => Promise<T> | T, holds: (seen: T) => boolean): Promise<T> {
  const deadline = performance.now() + WAIT_MS;
  for (;;) {
    const seen = await look();
    if (holds(seen)) return seen;
    if (performance.now() > deadline) throw new Error(`not so within ${WAIT_MS} ms: ${what}; last seen: ${JSON.stringify(seen)}`);
    await delay(20);
  }
}

/** The value of one metric; 0 where it has none yet. */
export async function metric(url: string, name: string): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const line = text.split("\n").find((one) => one.startsWith(`${name} `));
  return line === undefined ? 0 : Number(line.slice(name.length + 1));
}

/** Waits until the router may choose these engines, and no others. */
export async function fit(url: string, names: readonly string[]): Promise<void> {
  const look = async () =>
    ((await (await fetch(`${url}/health`)).json()) as { engines: { name: string; fit: boolean }[] }).engines.filter((one) => one.fit).map(({ name }) => name);
  await until(`only ${names.join(", ")} may be chosen`, look, (seen) => seen.join() === names.join());
}

/** Waits until the indexer hears an engine, so that nothing of what it stores is missed. */
export async function heard(indexer: string, names: readonly string[]): Promise<void> {
  const look = async () => {
    const { services } = (await (await fetch(`${indexer}/services`)).json()) as { services: { instance_id: string; freshness: { connected: boolean } }[] };
    return services.filter(({ freshness }) => freshness.connected).map(({ instance_id }) => instance_id);
  };
  await until("the indexer hears the engines", look, (seen) => names.every((name) => seen.includes(name)));
}

/** A port on which nobody answers: connections are taken and nothing is ever sent. */
export async function openSilent(): Promise<{ url: string } & AsyncDisposable> {
  const server = createServer((socket) => void socket.on("error", () => {}));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return { url: `http://127.0.0.1:${port}`, [Symbol.asyncDispose]: async () => void server.close() };
}
