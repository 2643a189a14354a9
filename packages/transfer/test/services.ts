// Real metadata services for the tests: etcd, redis and our own server, each a process that ends with the test.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { eventually } from "./parts.ts";

export type Service = AsyncDisposable & {
  /** The connection string of the engines. */
  readonly metadata: string;
  get(key: string): Promise<string | undefined>;
  put(key: string, value: string): Promise<void>;
  /** Ends it by SIGKILL and starts it anew with nothing in it. */
  wipe(): Promise<void>;
};

const METADATA_MAIN = fileURLToPath(new URL("../../store/src/metadata/main.ts", import.meta.url));
const START = `import(process.argv[1]).then(({ main }) => main(process.argv.slice(2))).then((code) => { process.exitCode = code; })`;

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

type Recipe = { command: string; args(port: number, folder: string): string[]; env?: NodeJS.ProcessEnv; alive(port: number): Promise<boolean> };

async function startService(recipe: Recipe, describe: (port: number) => Omit<Service, "wipe" | keyof AsyncDisposable>): Promise<Service> {
  let port = await freePort();
  let child: ChildProcess;
  let folder: string;
  /** Whether it began to answer; one that finds its port taken ends instead. */
  async function began(): Promise<boolean> {
    folder = mkdtempSync(join(tmpdir(), "svc-test-"));
    child = spawn(recipe.command, recipe.args(port, folder), { env: { ...process.env, ...recipe.env }, stdio: "ignore" });
    child.once("error", () => {});
    const lives = () => child.exitCode === null && child.signalCode === null;
    return eventually(async () => (lives() ? ((await recipe.alive(port)) && lives()) || undefined : false), `${recipe.command} answers`);
  }
  async function start(): Promise<void> {
    for (let attempt = 0; !(await began()); attempt++) {
      await stop();
      if (attempt === 20) throw new Error(`${recipe.command} ends at its start`);
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
  async function stop(): Promise<void> {
    if (child.exitCode === null && child.signalCode === null) {
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGKILL");
      await ended;
    }
    rmSync(folder, { recursive: true, force: true });
  }
  for (let attempt = 0; !(await began()); attempt++) {
    await stop();
    if (attempt === 20) throw new Error(`${recipe.command} ends at its start`);
    port = await freePort();
  }
  return {
    ...describe(port),
    async wipe() {
      await stop();
      await start();
    },
    [Symbol.asyncDispose]: stop,
  };
}

const answers = async (url: string, init?: RequestInit) =>
  fetch(url, init).then(
    (response) => response.ok,
    () => false,
  );

export function startHttp(flags: readonly string[] = []): Promise<Service> {
  const at = (port: number, key: string) => `http://127.0.0.1:${port}/meta/data?key=${encodeURIComponent(key)}`;
  const recipe: Recipe = {
    command: process.execPath,
    args: (port, folder) => [
      "--disable-warning=ExperimentalWarning",
      "-e",
      START,
      METADATA_MAIN,
      `--listen=127.0.0.1:${port}`,
      `--home=${folder}`,
      "--path=/meta/data",
      "--log-level=silent",
      ...flags,
    ],
    alive: (port) => answers(`http://127.0.0.1:${port}/health`),
  };
  return startService(recipe, (port) => ({
    metadata: `http://127.0.0.1:${port}/meta/data`,
    async get(key) {
      const response = await fetch(at(port, key));
      return response.status === 200 ? response.text() : undefined;
    },
    async put(key, value) {
      await fetch(at(port, key), { method: "PUT", body: value });
    },
  }));
}

export function startEtcd(scheme = "etcd://"): Promise<Service> {
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  const call = async (port: number, path: string, body: object) =>
    (await fetch(`http://127.0.0.1:${port}/v3/kv/${path}`, { method: "POST", body: JSON.stringify(body) })).json();
  const recipe: Recipe = {
    command: "etcd",
    args: (port, folder) => {
      const url = `http://127.0.0.1:${port}`;
      return [
        "--data-dir",
        folder,
        "--listen-client-urls",
        url,
        "--advertise-client-urls",
        url,
        "--listen-peer-urls",
        "http://127.0.0.1:0",
        "--unsafe-no-fsync",
      ];
    },
    env: { ETCD_UNSUPPORTED_ARCH: process.arch === "arm64" ? "arm64" : "" },
    alive: (port) => answers(`http://127.0.0.1:${port}/health`),
  };
  return startService(recipe, (port) => ({
    metadata: `${scheme}127.0.0.1:${port}`,
    async get(key) {
      const found = (await call(port, "range", { key: base64(key) })) as { kvs?: { value: string }[] };
      return found.kvs?.[0] === undefined ? undefined : Buffer.from(found.kvs[0].value, "base64").toString();
    },
    async put(key, value) {
      await call(port, "put", { key: base64(key), value: base64(value) });
    },
  }));
}

export function startRedis(): Promise<Service> {
  const ask = (port: number, ...words: string[]) =>
    new Promise<string>((resolve, reject) => {
      const child = spawn("redis-cli", ["-p", String(port), "--raw", ...words], { stdio: ["ignore", "pipe", "ignore"] });
      let text = "";
      child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
      });
      child.once("error", reject).once("close", () => resolve(text.replace(/\n$/, "")));
    });
  const recipe: Recipe = {
    command: "redis-server",
    args: (port, folder) => ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder],
    alive: async (port) => (await ask(port, "PING")) === "PONG",
  };
  return startService(recipe, (port) => ({
    metadata: `redis://127.0.0.1:${port}`,
    async get(key) {
      return (await ask(port, "EXISTS", key)) === "1" ? ask(port, "GET", key) : undefined;
    },
    async put(key, value) {
      await ask(port, "SET", key, value);
    },
  }));
}
