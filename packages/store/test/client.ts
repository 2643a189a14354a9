// Our store clients for tests: one in a process of its own, and one in the test's process.

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { endWithUs } from "@svc/harness/children.ts";
import { freeze, thaw } from "@svc/harness/freeze.ts";
import type { ClientOptions } from "../src/client/client-options.ts";
import { StoreClient } from "../src/client/store-client.ts";
import type { TestMaster } from "./master.ts";

const SCRIPT = fileURLToPath(new URL("client-process.ts", import.meta.url));
/** At least ten times the expected duration of a command. */
const ANSWER_MS = 120_000;

export type ClientProcess = {
  /** The name of its segments. */
  readonly name: string;
  readonly pid: number;
  ask<T = unknown>(op: string, ...args: readonly unknown[]): Promise<T>;
  kill(signal?: NodeJS.Signals): Promise<void>;
  /** Resolves once the process is stopped, until `thaw`. */
  freeze(): Promise<void>;
  thaw(): void;
} & AsyncDisposable;

type Answer = { seq: number; value?: unknown; error?: string; message?: string };

export async function startClient(master: Pick<TestMaster, "rpcPort">, options: Partial<ClientOptions> = {}): Promise<ClientProcess> {
  const setup: ClientOptions = { master: `127.0.0.1:${master.rpcPort}`, ...options };
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", SCRIPT, JSON.stringify(setup)], { stdio: ["pipe", "pipe", "pipe"] });
  endWithUs(child);
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => void (said = (said + chunk).slice(-4000)));
  child.stdin.on("error", () => {});
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const waiting = new Map<number, (answer: Answer) => void>();
  createInterface({ input: child.stdout }).on("line", (line) => {
    const answer = JSON.parse(line) as Answer;
    waiting.get(answer.seq)?.(answer);
  });
  void ended.then(() => {
    for (const [seq, settle] of waiting) settle({ seq, error: "ENDED", message: `the client ended: ${said}` });
  });
  async function answerTo<T>(seq: number, command?: object): Promise<T> {
    const answer = await new Promise<Answer>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`no answer within ${ANSWER_MS} ms to ${JSON.stringify(command)?.slice(0, 200)}`)), ANSWER_MS);
      waiting.set(seq, (found) => {
        clearTimeout(timer);
        waiting.delete(seq);
        resolve(found);
      });
      if (command !== undefined) child.stdin.write(`${JSON.stringify(command)}\n`);
    });
    if (answer.error !== undefined) throw new Error(`${answer.error}: ${answer.message}`);
    return answer.value as T;
  }
  let seq = 0;
  const name = await answerTo<string>(0);
  return {
    name,
    pid: child.pid ?? 0,
    ask: (op, ...args) => {
      seq++;
      return answerTo(seq, { seq, op, args });
    },
    async kill(signal = "SIGKILL") {
      child.kill(signal);
      await ended;
    },
    freeze: () => freeze(child.pid as number),
    thaw: () => thaw(child.pid as number),
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await ended;
    },
  };
}

export const openClient = (master: Pick<TestMaster, "rpcPort">, options: Partial<ClientOptions> = {}): Promise<StoreClient> =>
  StoreClient.open({ master: `127.0.0.1:${master.rpcPort}`, ...options });
