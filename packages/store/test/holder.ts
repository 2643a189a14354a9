// Mooncake's unmodified store client in a process of its own, driven by lines of JSON.

import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { endWithUs } from "@svc/harness/children.ts";

const SCRIPT = fileURLToPath(new URL("holder.py", import.meta.url));
export const MIB = 1024 * 1024;
/** At least ten times the expected duration of a call. */
const ANSWER_MS = 120_000;

export type HolderSetup = {
  readonly master: number;
  readonly metadata?: string;
  readonly name?: string;
  readonly segmentBytes?: number;
  readonly bufferBytes?: number;
  /** The folder of its disk tier. */
  readonly ssdPath?: string;
  /** Selects Mooncake's newest release instead of the tests' default one. */
  readonly isNewest?: boolean;
};

/** Returns the environment of Mooncake's newest client for `new Holder`. */
export const newest = (): Readonly<Record<string, string>> => {
  const folder = process.env["SVC_MOONCAKE_NEWEST"] ?? "";
  return { PYTHONPATH: folder, LD_LIBRARY_PATH: `${folder}/lib` };
};

export class Holder {
  readonly child: ChildProcess;
  readonly #waiting: ((line: string) => void)[] = [];

  constructor(more: Readonly<Record<string, string>> = {}) {
    const env = { ...process.env, PYTHONPATH: process.env["SVC_PYTHON_CLIENTS"], ...more, MC_FORCE_TCP: "1", MC_TCP_BIND_ADDRESS: "127.0.0.1" };
    this.child = spawn("python3", [SCRIPT], { env, stdio: ["pipe", "pipe", process.env["SVC_TEST_VERBOSE"] ? "inherit" : "ignore"] });
    createInterface({ input: this.child.stdout as NodeJS.ReadableStream }).on("line", (line) => this.#waiting.shift()?.(line));
    endWithUs(this.child);
    this.child.stdin?.on("error", () => {}); // a killed process reports its end by "close"
    this.child.once("close", () => {
      for (const next of this.#waiting.splice(0)) next(JSON.stringify({ error: "the holder ended" }));
    });
  }

  async ask<T = unknown>(command?: object): Promise<T> {
    const answer = new Promise<string>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`no answer within ${ANSWER_MS} ms to ${JSON.stringify(command)?.slice(0, 200)}`)), ANSWER_MS);
      this.#waiting.push((line) => {
        clearTimeout(timer);
        resolve(line);
      });
    });
    if (command !== undefined) this.child.stdin?.write(`${JSON.stringify(command)}\n`);
    const value = JSON.parse(await answer) as T;
    const error = (value as { error?: string } | null)?.error;
    if (typeof error === "string") throw new Error(error);
    return value;
  }

  call<T = unknown>(name: string, ...args: readonly unknown[]): Promise<T> {
    return this.ask<T>({ op: "call", name, args });
  }

  async get(key: string): Promise<string> {
    return Buffer.from((await this.call<{ bytes: string }>("get", key)).bytes, "base64").toString("latin1");
  }

  put(key: string, value: string, config?: object): Promise<number> {
    return this.call<number>("put", key, bytesOf(value), ...(config === undefined ? [] : [{ config }]));
  }

  /** Returns its segment's name. */
  name(): Promise<string> {
    return this.call<string>("get_hostname");
  }

  kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return Promise.resolve();
    const ended = new Promise<void>((resolve) => this.child.once("exit", () => resolve()));
    this.child.kill(signal);
    return ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}

export const bytesOf = (text: string) => ({ bytes: Buffer.from(text, "latin1").toString("base64") });

/** Starts a holder whose client is set up and mounted. */
export async function startHolder(setup: HolderSetup): Promise<Holder> {
  const holder = new Holder(setup.isNewest === true ? newest() : {});
  await holder.ask();
  const { master, metadata = "P2PHANDSHAKE", name = "127.0.0.1", segmentBytes = 64 * MIB, bufferBytes = 16 * MIB } = setup;
  const disk = setup.ssdPath === undefined ? [] : [null, true, setup.ssdPath];
  const code = await holder.call<number>("setup", name, metadata, segmentBytes, bufferBytes, "tcp", "", `127.0.0.1:${master}`, ...disk);
  if (code === 0) return holder;
  await holder.kill();
  throw new Error(`Mooncake's client did not set up: ${code}`);
}
