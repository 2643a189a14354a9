// The operations of a storm, each as a client performs it, with the obligations that its answer creates.
import { setTimeout as sleep } from "node:timers/promises";
import { call } from "@svc/contract/call.ts";
import { EnvdClient } from "@svc/contract/envd.ts";
import { asFailure, type Failure } from "@svc/contract/failures.ts";
import { connectSandbox, createSnapshot, forkSandbox, pauseSandbox } from "@svc/contract/lifecycle.ts";
import type { Input, Operation, Output } from "@svc/contract/operation.ts";
import { createSandbox, deleteSandbox } from "@svc/contract/sandbox.ts";
import { buildTemplate, getBuildStatus, requestTemplate } from "@svc/contract/template-build.ts";
import type { TestNode } from "./node.ts";
import { type Kind, pick } from "./storm-plan.ts";
import { idle, isLost, judge, type KnownSandbox, know, type State, type World } from "./storm-world.ts";

export type Storm = { readonly node: TestNode; readonly world: World; readonly during: string; readonly random: () => number };

const MAX_SANDBOXES = 8;
const MAX_SNAPSHOTS = 5;
const TEMPLATES = ["storm-a", "storm-b"] as const;
const LIFE_SECONDS = 80_000;
/** At least ten times what the slowest operation takes. */
const ANSWER_MS = 120_000;
const AGAIN_MS = 200;

/** Performs `wanted`, or another possible operation; resolves when its outcome is known. */
export async function operate(storm: Storm, wanted: Kind): Promise<void> {
  const { world, random } = storm;
  const running = idle(world, "running").filter(({ mark }) => mark !== undefined);
  const paused = idle(world, "paused");
  const isFull = world.sandboxes.size >= MAX_SANDBOXES;
  const source = running.length === 0 ? undefined : pick(running, random);
  if (wanted === "build") return build(storm);
  if (wanted === "resume" && paused.length > 0) return resume(storm, pick(paused, random));
  const more = wanted === "create" || wanted === "fork";
  if (wanted === "delete" || (isFull && more)) {
    const victim = pick([...running, ...paused, undefined], random);
    return victim === undefined ? undefined : remove(storm, victim);
  }
  if (source === undefined || wanted === "create" || wanted === "resume") return isFull ? undefined : create(storm);
  if (wanted === "pause") return pause(storm, source);
  return wanted === "fork" ? fork(storm, source) : snapshot(storm, source);
}

async function create(storm: Storm): Promise<void> {
  const { node, world, random } = storm;
  const origins: readonly (readonly [string, readonly (string | undefined)[]])[] = [
    ["base", []],
    ...[...world.snapshots].map(([id, mark]) => [id, [mark]] as const),
    ...[...world.templates].map(([name, marks]) => [name, marks] as const),
  ];
  const [templateID, marks] = pick(origins, random);
  const idempotencyKey = `storm-${process.pid}-${world.marks++}`;
  // Like a client with a lost connection, we repeat the same key until there is an answer.
  for (;;) {
    const made = await ask(storm, createSandbox, { templateID, timeout: LIFE_SECONDS, idempotencyKey });
    if ("failure" in made && isLost(made.failure)) {
      await sleep(AGAIN_MS);
      continue;
    }
    if ("failure" in made) return;
    world.acknowledged.create++;
    const known = know(world, made.value.sandboxID, undefined, "running");
    const envd = envdOf(node, made.value);
    const found = marks.length === 0 ? undefined : await said(envd, "cat kept");
    if (found !== undefined && !marks.includes(found.trim()))
      world.wrong.push(`a sandbox of ${templateID} holds ${JSON.stringify(found)}, not ${marks.join(" or ")}`);
    const mark = `mark-${world.marks++}`;
    const written = await said(envd, `echo ${mark} > kept; sync; (exec sleep 1000000) >/dev/null 2>&1 & echo $! > pid; echo written`);
    if (written === "written\n") known.mark = mark;
    return;
  }
}

async function pause(storm: Storm, known: KnownSandbox): Promise<void> {
  await changing(known, "paused", () => ask(storm, pauseSandbox, { sandboxID: known.sandboxID }, "pause"));
}

async function resume(storm: Storm, known: KnownSandbox): Promise<void> {
  await changing(known, "running", () => ask(storm, connectSandbox, { sandboxID: known.sandboxID, timeout: LIFE_SECONDS }, "resume"));
}

async function remove(storm: Storm, known: KnownSandbox): Promise<void> {
  await changing(known, "gone", () => ask(storm, deleteSandbox, { sandboxID: known.sandboxID }, "delete"));
}

async function changing(known: KnownSandbox, to: State, work: () => Promise<Asked<unknown>>): Promise<void> {
  const before = known.states;
  known.busy = true;
  known.states = [...before, to];
  if ("value" in (await work())) known.states = [to];
}

async function fork(storm: Storm, known: KnownSandbox): Promise<void> {
  const { world } = storm;
  known.busy = true;
  const forked = await ask(storm, forkSandbox, { sandboxID: known.sandboxID, count: 2, timeout: LIFE_SECONDS });
  if ("failure" in forked) {
    if (isLost(forked.failure)) world.unknownForks.add(known.sandboxID);
    return;
  }
  for (const child of forked.value) {
    if ("sandbox" in child) {
      world.acknowledged.fork++;
      know(world, child.sandbox.sandboxID, known.mark, "running");
    } else if (child.error.code >= 500 && /internal error/.test(child.error.message)) world.wrong.push(`a fork (${storm.during}): ${child.error.message}`);
  }
}

async function snapshot(storm: Storm, known: KnownSandbox): Promise<void> {
  const { world, random } = storm;
  if (world.snapshots.size >= MAX_SNAPSHOTS) world.snapshots.delete(pick([...world.snapshots.keys()], random));
  known.busy = true;
  const taken = await ask(storm, createSnapshot, { sandboxID: known.sandboxID }, "snapshot");
  if ("value" in taken) world.snapshots.set(taken.value.snapshotID, known.mark);
  else if (isLost(taken.failure)) world.unknownSnapshots++;
}

async function build(storm: Storm): Promise<void> {
  const { world, random } = storm;
  const name = pick(TEMPLATES, random);
  const mark = `mark-${world.marks++}`;
  const before = world.templates.get(name) ?? [];
  const asked = await ask(storm, requestTemplate, { name });
  if ("failure" in asked) return;
  const { templateID, buildID } = asked.value;
  if (before.length > 0) world.templates.set(name, [...before, mark]);
  const steps = [{ type: "RUN", args: [`echo ${mark} > /home/user/kept`] }];
  const started = await ask(storm, buildTemplate, { templateID, buildID, fromTemplate: "base", steps, force: true });
  if ("failure" in started && !isLost(started.failure)) return;
  for (;;) {
    const status = await ask(storm, getBuildStatus, { templateID, buildID });
    if ("value" in status && status.value.status === "ready") {
      world.acknowledged.build++;
      world.templates.set(name, [mark]);
      return;
    }
    if ("value" in status && status.value.status === "error") {
      if ((status.value.reason?.message ?? "").length < 10) world.wrong.push(`a build failed without a reason (${storm.during})`);
      return;
    }
    // The build was not started: the connection broke before the request arrived.
    if ("value" in status && status.value.status === "waiting" && "failure" in started) return;
    if ("failure" in status && !isLost(status.failure)) return;
    await sleep(AGAIN_MS);
  }
}

export type Asked<T> = { readonly value: T } | { readonly failure: Failure };

/** Sends one request; a failure is judged, and counted if it is an answer. */
export async function ask<T extends Operation>({ node, world, during }: Storm, operation: T, input: Input<T>, kind?: Kind): Promise<Asked<Output<T>>> {
  try {
    const value = await call(operation, input, { baseURL: node.url, apiKey: node.apiKey, timeoutMs: ANSWER_MS });
    if (kind !== undefined) world.acknowledged[kind]++;
    return { value };
  } catch (error) {
    const failure = asFailure(error);
    judge(world, operation, failure, during);
    return { failure };
  }
}

export function envdOf(node: TestNode, { sandboxID, envdAccessToken }: { sandboxID: string; envdAccessToken?: string | undefined }): EnvdClient {
  return new EnvdClient({ baseURL: node.url, sandboxID, envdAccessToken });
}

/** Returns the stdout of a command; undefined if it did not finish. */
export async function said(envd: EnvdClient, script: string): Promise<string | undefined> {
  try {
    let text = "";
    for await (const event of envd.start({ cmd: "sh", args: ["-c", `cd /home/user; ${script}`], user: "user", stdin: false, timeoutMs: 30_000 })) {
      if (event.type === "stdout") text += event.data.toString();
      if (event.type === "end") return event.exited ? text : undefined;
    }
    return undefined;
  } catch {
    return undefined;
  } finally {
    envd.close();
  }
}
