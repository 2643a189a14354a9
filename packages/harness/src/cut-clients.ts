// Clients of a deployment with network cuts: each creates, uses, pauses, resumes, moves, forks and deletes its own sandboxes.
import { call } from "@svc/contract/call.ts";
import { EnvdClient } from "@svc/contract/envd.ts";
import { asFailure, Failure } from "@svc/contract/failures.ts";
import { connectSandbox, forkSandbox, moveSandbox, pauseSandbox } from "@svc/contract/lifecycle.ts";
import type { Input, Operation, Output } from "@svc/contract/operation.ts";
import { createSandbox, deleteSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { type History, judgeFailure, judgeLog, type Kind, type Known, know } from "./cut-model.ts";
import { pick } from "./storm-plan.ts";

export type Client = {
  readonly gateway: { readonly url: string; readonly apiKey: string };
  readonly history: History;
  readonly random: () => number;
  /** The sandboxes of this client, each with one request at a time. */
  readonly own: Set<string>;
  readonly name: string;
  written: number;
};

const LIFE_SECONDS = 80_000;
/** This exceeds most cuts: an unanswered request may still be executed later, or not at all. */
const ANSWER_MS = 10_000;
/** The limit of one client. */
const MAX_SANDBOXES = 2;
/** An unanswered request may arrive this much later, and resume a sandbox that was paused meanwhile. */
const LATE_MS = 15_000;
const weights: readonly (readonly [Kind, number])[] = [
  ["append", 8],
  ["pause", 5],
  ["resume", 3],
  ["move", 4],
  ["fork", 2],
  ["create", 2],
  ["delete", 1],
];
const deck = weights.flatMap(([kind, weight]) => Array.from({ length: weight }, () => kind));

/** Creates something to lose: two sandboxes with a line each, one of them paused. */
export async function begin(client: Client): Promise<void> {
  for (let index = 0; index < MAX_SANDBOXES; index++) await create(client);
  const all = [...client.own].flatMap((sandboxID) => client.history.known.get(sandboxID) ?? []);
  for (const known of all) await append(client, known);
  for (const known of all.slice(1)) await pause(client, known);
}

const pause = (client: Client, known: Known) =>
  attempt(client, "pause", known, async () => {
    await ask(client, pauseSandbox, { sandboxID: known.sandboxID });
    return "paused";
  });

/** Sends one request, chosen from those that are possible now. */
export async function step(client: Client): Promise<void> {
  const { history, own, random } = client;
  const all = [...own].flatMap((sandboxID) => history.known.get(sandboxID) ?? []);
  const wanted = pick(deck, random);
  const makesMore = wanted === "create" || wanted === "fork";
  if (all.length === 0 || (wanted === "create" && all.length < MAX_SANDBOXES)) return create(client);
  const known = pick(all, random);
  const kind = makesMore && (all.length >= MAX_SANDBOXES || wanted === "create") ? "append" : wanted;
  if (kind === "append") return append(client, known).then(() => undefined);
  if (kind === "fork") return fork(client, known);
  if (kind === "delete") return remove(client, known);
  if (kind === "pause") return pause(client, known).then(() => undefined);
  const { sandboxID } = known;
  await attempt(client, kind, known, async () => {
    if (kind === "move") return (await ask(client, moveSandbox, { sandboxID })).state;
    await ask(client, connectSandbox, { sandboxID, timeout: LIFE_SECONDS });
    return "running";
  });
}

/** Runs the request and records the new state. Returns undefined if it was refused or not answered. */
async function attempt(client: Client, kind: Kind, known: Known, work: () => Promise<Known["state"]>): Promise<Known["state"] | undefined> {
  const before = known.state;
  known.state = "unknown";
  try {
    const state = await work();
    known.state = state === "paused" && performance.now() < known.mayWakeUntilMs ? "unknown" : state;
    client.history.acknowledged[kind]++;
    return known.state;
  } catch (error) {
    known.mayWakeUntilMs = performance.now() + LATE_MS;
    // The proxy gives the same answer for a sandbox that is gone, ended or unknown; the control plane distinguishes them.
    const isProxys = asFailure(error).name === "SANDBOX_NOT_RUNNING";
    const reason = isProxys
      ? await ask(client, getSandbox, { sandboxID: known.sandboxID }).then(
          () => error,
          (why: unknown) => why,
        )
      : error;
    judgeFailure(client.history, kind, known, before, reason);
    return undefined;
  }
}

async function create(client: Client): Promise<void> {
  try {
    const input = { templateID: "base", timeout: LIFE_SECONDS, autoPause: true, autoResume: { enabled: true } };
    client.own.add(know(client.history, await ask(client, createSandbox, input)).sandboxID);
    client.history.acknowledged.create++;
  } catch (error) {
    judgeFailure(client.history, "create", undefined, "unknown", error);
  }
}

/** Appends a line to both logs and reads them, which resumes a paused sandbox. Returns whether it was answered. */
export async function append(client: Client, known: Known): Promise<boolean> {
  const line = `${client.name}-${client.written++}`;
  known.attempted.add(line);
  const done = await attempt(client, "append", known, async () => {
    const said = await run(client, known, `echo ${line} | tee -a /dev/shm/log >> log && cat log && echo --- && cat /dev/shm/log`);
    known.acknowledged.push(line);
    for (const log of said.split("---\n")) judgeLog(client.history, known, log);
    return "running";
  });
  return done !== undefined;
}

async function fork(client: Client, known: Known): Promise<void> {
  const { history, own } = client;
  await attempt(client, "fork", known, async () => {
    for (const child of await ask(client, forkSandbox, { sandboxID: known.sandboxID, count: 1 }))
      if ("sandbox" in child) own.add(know(history, child.sandbox, known).sandboxID);
    return "unknown";
  });
}

export async function remove(client: Client, known: Known): Promise<void> {
  known.mayBeGone = true;
  await attempt(client, "delete", known, async () => {
    await ask(client, deleteSandbox, { sandboxID: known.sandboxID });
    client.history.known.delete(known.sandboxID);
    client.history.gone.add(known.sandboxID);
    return "unknown";
  });
}

export function ask<T extends Operation>({ gateway }: Pick<Client, "gateway">, operation: T, input: Input<T>): Promise<Output<T>> {
  return call(operation, input, { baseURL: gateway.url, apiKey: gateway.apiKey, timeoutMs: ANSWER_MS });
}

async function run({ gateway }: Client, { sandboxID, envdAccessToken }: Known, script: string): Promise<string> {
  const envd = new EnvdClient({ baseURL: gateway.url, sandboxID, envdAccessToken, silenceMs: ANSWER_MS });
  const signal = AbortSignal.timeout(ANSWER_MS);
  try {
    let text = "";
    for await (const event of envd.start({ cmd: "sh", args: ["-c", `cd /home/user; ${script}`], user: "user", stdin: false, signal })) {
      if (event.type === "stdout") text += event.data.toString();
      if (event.type === "end" && event.exited && event.exitCode === 0) return text;
      if (event.type === "end") throw new Failure("SANDBOX_NOT_RUNNING", "the command did not come to its end");
    }
    throw new Failure("SERVER_UNREACHABLE", "the command's stream ended before the command did");
  } catch (error) {
    throw signal.aborted ? new Failure("TIMED_OUT", `${ANSWER_MS} ms are over`, { cause: error }) : error;
  } finally {
    envd.close();
  }
}
