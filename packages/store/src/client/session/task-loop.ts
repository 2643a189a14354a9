// Fetches the copies and moves that the master assigns to this client, has them executed in batches, and reports their results.
import { setTimeout as sleep } from "node:timers/promises";
import { fail } from "@svc/contract/failures.ts";
import { z } from "zod";
import type { ValueOf } from "../../rpc/schema.ts";
import type { taskAssignment } from "../../rpc/shapes.ts";
import type { Connections } from "./connections.ts";

/** The tasks of one fetch, which are started, executed and ended together. */
const MAX_FETCHED = 128;
/** Bounds the batches in progress: the next one is fetched while others transfer, and a slow holder delays only its own batch. */
const MAX_BATCHES = 4;
/** The time limit of a task: the default processing_task_timeout, after which the master gives it up. */
const TASK_MS = 300_000;
const REPORT_MS = 30_000;
const CLOSE_MS = 2000;
const MAX_MESSAGE = 1000;
const FAILED = 2;
const SUCCEEDED = 3;

const payload = z.union([
  z.object({ tenant_id: z.string(), key: z.string(), source: z.string(), targets: z.array(z.string()).min(1) }),
  z
    .object({ tenant_id: z.string(), key: z.string(), source: z.string(), target: z.string() })
    .transform(({ target, ...rest }) => ({ ...rest, targets: [target] })),
]);

/** The task type of a command for an owner of cold-tier devices; command and answer are texts of one byte per character. */
const COMMAND = 2;
const MAX_COMMANDS = 64;
/** The polling interval of clients that obey commands: shorter than that of pings, since an administrator waits for each command. */
const COMMAND_MS = 200;
const MAX_ANSWER = 32 * 1024;

export type Task = {
  readonly id: string;
  readonly kind: "copy" | "move";
  readonly tenant: string;
  readonly key: string;
  /** Names of segments; a move has one target. */
  readonly source: string;
  readonly targets: readonly string[];
};

/** Returns the error of each task, or undefined for one that succeeded; stops when the signal is aborted. It never throws for a single task. */
export type TaskExecutor = (tasks: readonly Task[], signal: AbortSignal) => Promise<readonly (Error | undefined)[]>;

export type TaskLoop = {
  readonly clientID: string;
  readonly connections: Connections;
  readonly execute: TaskExecutor;
  /** Answers a command; without it commands fail. */
  readonly obey?: (command: string) => Promise<string>;
  readonly everyMs: number;
  readonly signal: AbortSignal;
};

type Assignment = ValueOf<typeof taskAssignment>;

/** Resolves once the signal is aborted and all running tasks have ended. */
export async function runTasks({ clientID, connections, execute, obey, everyMs, signal }: TaskLoop): Promise<void> {
  const running = new Set<Promise<void>>();
  /** Commands run separately, so that a slow device delays no copy. */
  const commands = new Set<Promise<void>>();

  async function answer({ id, payload: text }: Assignment): Promise<void> {
    let outcome: ReturnType<typeof outcomeOf>;
    try {
      if (commands.size > MAX_COMMANDS) fail("TOO_MANY_REQUESTS", `${MAX_COMMANDS} commands are in progress, the maximum: try again later`);
      const said = (await obey?.(Buffer.from(text, "latin1").toString())) ?? fail("INVALID_REQUEST", "this client has no devices of the cold tier");
      if (Buffer.byteLength(said) > MAX_ANSWER) fail("INTERNAL", `an answer of ${said.length} characters is longer than ${MAX_ANSWER} bytes`);
      outcome = { id, status: SUCCEEDED, message: latin1(said) };
    } catch (error) {
      outcome = outcomeOf(id, error as Error);
    }
    await connections.callUntil(REPORT_MS, "CompleteTasks", clientID, [outcome]).catch(() => undefined);
  }

  function begin(assignment: Assignment): void {
    const command: Promise<void> = answer(assignment).finally(() => commands.delete(command));
    commands.add(command);
  }

  async function run(assignments: readonly Assignment[]): Promise<void> {
    const read = assignments.map(taskOf);
    const tasks = read.flatMap((task) => (task instanceof Error ? [] : task));
    const failures = await execute(tasks, AbortSignal.any([signal, AbortSignal.timeout(TASK_MS)]));
    const failureOf = new Map<Task | Error, Error | undefined>(tasks.map((task, at) => [task, failures[at]]));
    const outcomes = read.map((task, at) => outcomeOf((assignments[at] as Assignment).id, task instanceof Error ? task : failureOf.get(task)));
    // If the report does not arrive, the master's own time limit ends the task.
    await connections.callUntil(REPORT_MS, "CompleteTasks", clientID, outcomes).catch(() => undefined);
  }

  const waitMs = obey === undefined ? everyMs : Math.min(everyMs, COMMAND_MS);
  while (!signal.aborted) {
    const fetched = await connections.call("FetchTasks", clientID, BigInt(MAX_FETCHED)).catch(() => undefined);
    const assignments = fetched?.ok === true ? fetched.value : [];
    const copies = assignments.filter(({ type }) => type !== COMMAND);
    for (const assignment of assignments) if (assignment.type === COMMAND) begin(assignment);
    if (copies.length > 0) {
      const batch: Promise<void> = run(copies).finally(() => running.delete(batch));
      running.add(batch);
    }
    // A full fetch means that more tasks are pending.
    if (assignments.length < MAX_FETCHED) await sleep(waitMs, undefined, { signal, ref: false }).catch(() => undefined);
    while (!signal.aborted && running.size >= MAX_BATCHES) await Promise.race(running);
  }
  await Promise.all(running);
  await Promise.race([Promise.all(commands), sleep(CLOSE_MS, undefined, { ref: false })]);
}

/** Returns an error for a payload that no client of this release can read. */
function taskOf({ id, type, payload: text }: Assignment): Task | Error {
  try {
    const { tenant_id: tenant, key, source, targets } = payload.parse(JSON.parse(text));
    return { id, kind: type === 0 ? "copy" : "move", tenant, key, source, targets };
  } catch (error) {
    return error as Error;
  }
}

function outcomeOf(id: string, failure: Error | undefined): { id: string; status: number; message: string } {
  if (failure === undefined) return { id, status: SUCCEEDED, message: "" };
  return { id, status: FAILED, message: latin1((failure.message || String(failure)).slice(0, MAX_MESSAGE)) };
}

/** Texts on the wire have one byte per character. */
const latin1 = (text: string) => Buffer.from(text).toString("latin1");
