// A server as a separate process: started until it is ready, ended by a signal, and never left behind by tests.

import { type ChildProcess, spawn } from "node:child_process";
import { endWithUs } from "./children.ts";
import { makeHome, removeHome } from "./home.ts";
import { inside, type Namespace } from "./namespaces.ts";
import { freePorts } from "./ports.ts";

/** At least ten times what a start or a stop should take. */
const READY_MS = 60_000;
const STOP_MS = 30_000;

export type Started = { readonly child: ChildProcess; readonly port: number };

/** Resolves when the server reports its address. */
export function startProcess(
  main: string,
  flags: readonly string[],
  env: Readonly<Record<string, string>>,
  onLog: (text: string) => void,
  namespace?: Namespace,
): Promise<Started> {
  const [program = "", ...args] = inside(namespace, [process.execPath, main, ...flags]);
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...env } });
  endWithUs(child);
  return new Promise((resolve, reject) => {
    let said = "";
    let out = "";
    const timer = setTimeout(() => {
      child.kill("SIGKILL");
      reject(new Error(`the server was not ready within ${READY_MS} ms: ${said.slice(-3000)}`));
    }, READY_MS);
    child.stderr.on("data", (chunk: Buffer) => {
      said = (said + chunk.toString()).slice(-20_000);
      onLog(chunk.toString());
    });
    child.stdout.on("data", (chunk: Buffer) => {
      out += chunk.toString();
      const port = /ready at https?:\/\/[^\s]*:(\d+)/.exec(out)?.[1];
      if (port === undefined) return;
      clearTimeout(timer);
      resolve({ child, port: Number(port) });
    });
    child.once("exit", (code, signal) => {
      clearTimeout(timer);
      reject(new Error(`the server ended with ${code ?? signal} before it was ready: ${said.slice(-3000)}`));
    });
  });
}

export type OpenServer = {
  readonly url: string;
  log(): string;
  kill(signal: NodeJS.Signals): Promise<void>;
  /** Starts it again at the same address. */
  start(): Promise<void>;
} & AsyncDisposable;

/**
 * Starts any server on its own port; `program` is its main file, or Node's arguments to start it. A server that is given no home gets one of its
 * own, which ends with it: that of the machine may be somebody's.
 */
export async function openServer(program: readonly string[], flags: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<OpenServer> {
  const [main = "", ...more] = program;
  let started: Started | undefined;
  // The port stays reserved while the server is down.
  const [port] = await freePorts(1);
  const isGiven = env["SVC_HOME"] !== undefined || flags.some((flag) => /^--home(=|$)/.test(flag));
  const home = isGiven ? undefined : makeHome();
  let logged = "";
  const kill = async (signal: NodeJS.Signals) => {
    if (started !== undefined) await endProcess(started.child, signal);
  };
  const start = async () => {
    started = await startProcess(main, [...more, `--listen=127.0.0.1:${port}`, ...(home === undefined ? [] : [`--home=${home}`]), ...flags], env, (text) => {
      logged += text;
    });
  };
  await start();
  async function dispose(): Promise<void> {
    await kill("SIGKILL");
    if (home !== undefined) removeHome(home);
  }
  return { url: `http://127.0.0.1:${port}`, log: () => logged, kill, start, [Symbol.asyncDispose]: dispose };
}

export async function endProcess(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const end = ended(child);
  child.kill(signal);
  let hung = false;
  const timer = setTimeout(() => {
    hung = true;
    child.kill("SIGKILL");
  }, STOP_MS);
  await end;
  clearTimeout(timer);
  if (hung) throw new Error(`the server had not ended ${STOP_MS} ms after ${signal}`);
}

export function ended(child: ChildProcess): Promise<number | string> {
  return new Promise((resolve) => child.once("exit", (code, signal) => resolve(code ?? signal ?? "?")));
}
