// Our client's session in a process of its own, driven by lines of JSON.

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { endWithUs } from "@svc/harness/children.ts";
import { freeze, thaw } from "@svc/harness/freeze.ts";

const SCRIPT = fileURLToPath(new URL("member-process.ts", import.meta.url));
/** At least ten times the expected duration of a command. */
const ANSWER_MS = 120_000;

export type MemberSegment = { id: string; name: string; base: string; sizeBytes: string; endpoint: string; protocol: string };
export type MemberState = {
  clientID: string;
  name: string;
  isJoined: boolean;
  segments: { id: string; base: string; sizeBytes: string; state: string }[];
  mappedBytes: number;
  events: string[];
  tasks: { kind: string; tenant: string; key: string; source: string; targets: string[] }[];
};
type Answer = { seq: number; value?: unknown; error?: string; message?: string };

export type Member = {
  ask<T = unknown>(op: string, command?: object): Promise<T>;
  state(): Promise<MemberState>;
  kill(signal?: NodeJS.Signals): Promise<void>;
  /** Resolves once the process is stopped, until `thaw`. */
  freeze(): Promise<void>;
  thaw(): void;
} & AsyncDisposable;

/** @throws what the process printed when it did not join: "NAME: message". */
export async function startMember(setup: object): Promise<Member> {
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", SCRIPT, JSON.stringify(setup)], {
    stdio: ["pipe", "pipe", process.env["SVC_TEST_VERBOSE"] ? "inherit" : "ignore"],
  });
  endWithUs(child);
  child.stdin.on("error", () => {});
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const waiting = new Map<number, (answer: Answer) => void>();
  let seq = 0;
  const first = Promise.withResolvers<void>();
  createInterface({ input: child.stdout }).on("line", (line) => {
    const said = JSON.parse(line) as Answer | "ready";
    if (said === "ready") first.resolve();
    else if (said.seq === undefined) first.reject(new Error(`${said.error}: ${said.message}`));
    else waiting.get(said.seq)?.(said);
  });
  void ended.then(() => {
    first.reject(new Error("the member ended"));
    for (const [number, settle] of waiting) settle({ seq: number, error: "ENDED", message: "the member ended" });
  });
  await first.promise;
  async function ask<T>(op: string, command: object = {}): Promise<T> {
    const own = ++seq;
    const answer = await new Promise<Answer>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`no answer within ${ANSWER_MS} ms to ${op}`)), ANSWER_MS);
      waiting.set(own, (said) => {
        clearTimeout(timer);
        waiting.delete(own);
        resolve(said);
      });
      child.stdin.write(`${JSON.stringify({ op, ...command, seq: own })}\n`);
    });
    if (answer.error !== undefined) throw new Error(`${answer.error}: ${answer.message}`);
    return answer.value as T;
  }
  async function kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    child.kill(signal);
    await ended;
  }
  return {
    ask,
    state: () => ask("state"),
    kill,
    freeze: () => freeze(child.pid as number),
    thaw: () => thaw(child.pid as number),
    [Symbol.asyncDispose]: () => kill(),
  };
}
