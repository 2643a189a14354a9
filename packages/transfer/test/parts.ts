// Parts of this package's tests: engines that end with the test, and Mooncake's own engine as a peer.
import { type ChildProcess, spawn } from "node:child_process";
import { createHash, randomFillSync } from "node:crypto";
import { existsSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { freeze, thaw } from "@svc/harness/freeze.ts";
import { TransferEngine } from "../src/engine.ts";
import type { EngineOptions, InitOptions, Proto } from "../src/engine-options.ts";

export const MIB = 1024 * 1024;

export type EngineSetup = EngineOptions & Partial<InitOptions> & { readonly transports?: readonly Proto[] };

/** Starts an engine on loopback that uses a handshake, unless the options say otherwise. */
export async function startEngine(setup: EngineSetup = {}): Promise<TransferEngine> {
  const engine = new TransferEngine({ ...setup, settings: { log_level: 0, ...setup.settings } });
  await engine.init({ metadata: "P2PHANDSHAKE", name: "127.0.0.1", host: "127.0.0.1", ...setup });
  for (const proto of setup.transports ?? (["tcp"] as const)) await engine.installTransport(proto);
  return engine;
}

export function randomBytes(sizeBytes: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(sizeBytes);
  for (let at = 0; at < sizeBytes; at += MIB) randomFillSync(bytes, at, Math.min(MIB, sizeBytes - at));
  return bytes;
}

export const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

/** The limit is at least ten times what anything here should take. */
export async function eventually<T>(read: () => T | undefined | Promise<T | undefined>, what: string, withinMs = 30_000): Promise<T> {
  const until = Date.now() + withinMs;
  while (Date.now() < until) {
    const found = await read();
    if (found !== undefined) return found;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`not within ${withinMs} ms: ${what}`);
}

const PYTHON_FOLDER = process.env["SVC_PYTHON_CLIENTS"] ?? "";

/** Test options: the wheel may be missing on a laptop, but must not be in CI. */
export function needsWheel(): { skip: string | false } {
  if (existsSync(PYTHON_FOLDER)) return { skip: false };
  const says = "missing on this host: the Python transfer engine; ./svc setup installs what can be installed";
  if (process.env["CI"] === "true") throw new Error(says);
  return { skip: says };
}

/** A child process that reads one JSON line per command and answers with one; it is killed with the test. */
export class LineChild {
  readonly child: ChildProcess;
  readonly #waiting: ((line: string) => void)[] = [];
  readonly #early: string[] = [];
  #ended = false;

  constructor(command: string, args: readonly string[], env: NodeJS.ProcessEnv = {}) {
    this.child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["pipe", "pipe", process.env["SVC_TEST_VERBOSE"] ? "inherit" : "ignore"] });
    const lines = createInterface({ input: this.child.stdout as NodeJS.ReadableStream });
    lines.on("line", (line) => {
      const next = this.#waiting.shift();
      if (next === undefined) this.#early.push(line);
      else next(line);
    });
    this.child.stdin?.on("error", () => {}); // a killed child does not answer, and the "close" event reports that
    // We wait for "close", because the last line of output is still an answer.
    this.child.once("close", () => {
      this.#ended = true;
      for (const next of this.#waiting.splice(0)) next(JSON.stringify({ error: "the child ended" }));
    });
  }

  async line<T = unknown>(): Promise<T> {
    const early = this.#early.shift();
    if (early === undefined && this.#ended) throw new Error("the child ended");
    const line = early ?? (await new Promise<string>((resolve) => this.#waiting.push(resolve)));
    const value = JSON.parse(line) as T;
    const error = (value as { error?: string } | null)?.error;
    if (typeof error === "string") throw new Error(error);
    return value;
  }

  async ask<T = unknown>(command: object): Promise<T> {
    this.child.stdin?.write(`${JSON.stringify(command)}\n`);
    return this.line<T>();
  }

  /** Resolves when the process is stopped; `thaw` continues it. */
  freeze(): Promise<void> {
    return freeze(this.child.pid as number);
  }

  thaw(): void {
    thaw(this.child.pid as number);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill("SIGKILL");
    await ended;
  }
}

/** Starts Mooncake's Python engine in its own process. */
export async function startWheel(name: string, metadata: string): Promise<LineChild & { segment: string }> {
  const script = fileURLToPath(new URL("peer.py", import.meta.url));
  // The engine would otherwise use the first interface, which may be unable to reach itself here.
  const env = { PYTHONPATH: PYTHON_FOLDER, MC_FORCE_TCP: "1", MC_TCP_BIND_ADDRESS: "127.0.0.1" };
  const peer = new LineChild("python3", [script], env);
  await peer.line();
  const code = await peer.ask<number>({ op: "initialize", name, metadata });
  if (code !== 0) throw new Error(`the Python engine did not start: ${code}`);
  const port = await peer.ask<number>({ op: "port" });
  return Object.assign(peer, { segment: metadata === "P2PHANDSHAKE" ? `${name.split(":")[0]}:${port}` : name });
}

/** Starts our engine in its own process; with `rpcPort` it can return under its name. */
export async function startChild(setup: EngineSetup = {}): Promise<LineChild & { segment: string }> {
  for (const until = Date.now() + 60_000; ; ) {
    try {
      return await startOnce(setup);
    } catch (error) {
      // An engine of another test may temporarily use the port.
      if (setup.rpcPort === undefined || Date.now() > until || !/is in use/.test(String(error))) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

async function startOnce(setup: EngineSetup): Promise<LineChild & { segment: string }> {
  const peer = new LineChild(process.execPath, ["--disable-warning=ExperimentalWarning", fileURLToPath(new URL("child.ts", import.meta.url))]);
  const { transports, ...rest } = setup;
  const options = { metadata: "P2PHANDSHAKE", name: "127.0.0.1", host: "127.0.0.1", ...rest, settings: { log_level: 0, ...rest.settings } };
  try {
    await peer.line();
    const segment = await peer.ask<string>({ op: "start", options, transports: transports ?? ["tcp"] });
    return Object.assign(peer, { segment });
  } catch (error) {
    // A child that stays alive would keep the test's process from ending.
    await peer[Symbol.asyncDispose]();
    throw error;
  }
}
