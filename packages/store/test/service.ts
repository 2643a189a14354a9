// Starts the store's REST service in a process of its own.

import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { endWithUs } from "@svc/harness/children.ts";
import { makeHome, removeHome } from "@svc/harness/home.ts";

const MAIN = fileURLToPath(new URL("../src/service/main.ts", import.meta.url));

export type TestService = {
  readonly url: string;
  readonly pid: number;
  log(): string;
  /** Makes a call with a JSON body; returns the status and the answer's JSON. */
  ask(method: string, path: string, body?: unknown): Promise<{ status: number; body: Record<string, unknown> }>;
  post(path: string, body: unknown): Promise<{ status: number; body: Record<string, unknown> }>;
  kill(signal?: NodeJS.Signals): Promise<number | null>;
} & AsyncDisposable;

export type ServiceSetup = {
  readonly master?: number;
  readonly flags?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** With a given port the test can ask /health before the service is ready. */
  readonly port?: number;
  readonly isAwaited?: boolean;
};

export async function startService({ master, flags = [], env = {}, port = 0, isAwaited = true }: ServiceSetup): Promise<TestService> {
  const home = makeHome();
  const own = [`--home=${home}`, "--host=127.0.0.1", `--port=${port}`, ...(master === undefined ? [] : [`--master_server_address=127.0.0.1:${master}`])];
  const child: ChildProcess = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", MAIN, ...own, ...flags], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ...env },
  });
  endWithUs(child);
  const ended = new Promise<number | null>((resolve) => child.once("exit", (code) => resolve(code)));
  let said = "";
  let url = `http://127.0.0.1:${port}`;
  child.stderr?.setEncoding("utf8").on("data", (chunk: string) => void (said += chunk));
  const ready = new Promise<void>((resolve, reject) => {
    let text = "";
    child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk;
      url = /ready at (\S+)/.exec(text)?.[1] ?? url;
      if (/ready at/.test(text)) resolve();
    });
    child.once("exit", (code) => reject(new Error(`the service ended with ${code}: ${said}`)));
  });
  async function kill(signal: NodeJS.Signals = "SIGKILL"): Promise<number | null> {
    if (child.exitCode === null && child.signalCode === null) child.kill(signal);
    return ended;
  }
  async function close(): Promise<void> {
    await kill();
    removeHome(home);
  }
  if (isAwaited) {
    await ready.catch(async (error) => {
      await close();
      throw error;
    });
  } else ready.catch(() => {});
  async function ask(method: string, path: string, body?: unknown) {
    const answer = await fetch(`${url}${path}`, {
      method,
      headers: { "Content-Type": "application/json" },
      ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
    });
    const text = await answer.text();
    return { status: answer.status, body: (text.startsWith("{") ? JSON.parse(text) : { text }) as Record<string, unknown> };
  }
  return {
    get url() {
      return url;
    },
    get pid() {
      return child.pid ?? 0;
    },
    log: () => said,
    ask,
    post: (path, body) => ask("POST", path, body),
    kill,
    [Symbol.asyncDispose]: close,
  };
}
