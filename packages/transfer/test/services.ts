// Real metadata services for the tests: etcd, redis and our own server, each a process that ends with the test.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startEtcd as startOneEtcd } from "@svc/harness/etcd.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { openEtcd } from "@svc/kit/etcd/client.ts";
import { eventually } from "./parts.ts";

export type Service = AsyncDisposable & {
  /** The connection string of the engines. */
  readonly metadata: string;
  get(key: string): Promise<string | undefined>;
  put(key: string, value: string): Promise<void>;
  /** Ends it with SIGKILL and starts an empty one. */
  wipe(): Promise<void>;
};

const METADATA_MAIN = fileURLToPath(new URL("../../store/src/metadata/main.ts", import.meta.url));
const START = `import(process.argv[1]).then(({ main }) => main(process.argv.slice(2))).then((code) => { process.exitCode = code; })`;

export async function freePort(): Promise<number> {
  const [port] = await freePorts(1);
  return port as number;
}

type Recipe = { command: string; args(port: number, folder: string): string[]; env?: NodeJS.ProcessEnv; alive(port: number): Promise<boolean> };

async function startService(recipe: Recipe, describe: (port: number) => Omit<Service, "wipe" | keyof AsyncDisposable>): Promise<Service> {
  let port = await freePort();
  let child: ChildProcess;
  let folder: string;
  /** Returns whether the service answers; one that finds its port taken ends instead. */
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

export async function startEtcd(scheme = "etcd://"): Promise<Service> {
  const etcd = await startOneEtcd();
  const url = etcd.endpoints[0] as string;
  const client = openEtcd({ endpoints: etcd.endpoints });
  return {
    metadata: `${scheme}${new URL(url).host}`,
    get: async (key) => (await client.get(key))?.value,
    async put(key, value) {
      await client.put(key, value);
    },
    async wipe() {
      await etcd.members[0]?.wipe();
    },
    async [Symbol.asyncDispose]() {
      await client.close();
      await etcd[Symbol.asyncDispose]();
    },
  };
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
