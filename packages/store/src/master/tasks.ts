// Copy and move tasks: queued for the client with the source, fetched by it, and ended by its report.
import { randomBytes } from "node:crypto";
import { codes } from "../rpc/codes.ts";
import type { Expected, ValueOf } from "../rpc/schema.ts";
import type { taskAssignment, taskOutcome, taskState } from "../rpc/shapes.ts";

/** A command goes to an owner of cold-tier devices; the message of its end is the answer. */
export const taskType = { copy: 0, move: 1, command: 2 } as const;
export const taskStatus = { pending: 0, processing: 1, failed: 2, success: 3 } as const;

export type Task = {
  readonly id: string;
  readonly type: number;
  readonly clientID: string;
  readonly payload: string;
  /** How often the client may retry the task; the master's limit if undefined. */
  readonly maxRetries?: number;
  readonly createdMs: number;
  status: number;
  updatedMs: number;
  message: string;
};

const MAX_MESSAGE_BYTES = 1024;
export const MAX_COMMAND_BYTES = 32 * 1024;

export type TaskLimits = { readonly maxTasks: number; readonly pendingMs: number; readonly processingMs: number; readonly maxRetries: number };

export function newID(): string {
  const hex = randomBytes(16).toString("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

//   pending --fetch--> processing --complete--> success | failed
//      \------too long-------\-----too long-----> failed       (ended ones are kept until there are too many)
export type TaskParts = {
  readonly limits: TaskLimits;
  /** Reports the number of tasks that wait for a client. */
  onQueued(clientID: string, count: number): void;
  now(): number;
  /** Stores tasks in the log, so that they outlive the master. Returns whether the log accepted all of them. */
  keep(tasks: readonly Task[]): boolean;
  forget(ids: readonly string[]): void;
};

export class Tasks {
  readonly #limits: TaskLimits;
  readonly #parts: TaskParts;
  readonly #tasks = new Map<string, Task>();
  readonly #queues = new Map<string, Task[]>();
  #ended: string[] = [];

  constructor(parts: TaskParts) {
    this.#limits = parts.limits;
    this.#parts = parts;
  }

  /** Restores tasks from the log; those that were running continue at their clients. */
  restore(tasks: readonly Task[]): void {
    for (const task of tasks) {
      this.#tasks.set(task.id, task);
      if (task.status === taskStatus.pending) this.#enqueue(task);
    }
    const ended = tasks.filter(({ status }) => status === taskStatus.failed || status === taskStatus.success);
    this.#ended = ended.sort((a, b) => a.updatedMs - b.updatedMs).map(({ id }) => id);
  }

  get size(): number {
    return this.#tasks.size;
  }

  create(type: number, clientID: string, payload: object, maxRetries = this.#limits.maxRetries): Expected<string> {
    return this.#create(type, clientID, JSON.stringify(payload), maxRetries);
  }

  createCommand(clientID: string, command: string): Expected<string> {
    return this.#create(taskType.command, clientID, command, 0);
  }

  #create(type: number, clientID: string, payload: string, maxRetries: number): Expected<string> {
    if (this.#tasks.size - this.#ended.length >= this.#limits.maxTasks) return { ok: false, code: codes.TASK_PENDING_LIMIT_EXCEEDED };
    const now = this.#parts.now();
    const task: Task = {
      id: newID(),
      type,
      clientID,
      payload,
      maxRetries,
      createdMs: now,
      status: taskStatus.pending,
      updatedMs: now,
      message: "",
    };
    if (!this.#parts.keep([task])) return { ok: false, code: codes.PERSISTENT_FAIL };
    this.#tasks.set(task.id, task);
    this.#enqueue(task);
    return { ok: true, value: task.id };
  }

  #enqueue(task: Task): void {
    const queue = this.#queues.get(task.clientID) ?? [];
    queue.push(task);
    this.#queues.set(task.clientID, queue);
    this.#parts.onQueued(task.clientID, queue.length);
  }

  fetch(clientID: string, most: number): ValueOf<typeof taskAssignment>[] {
    const queue = this.#queues.get(clientID) ?? [];
    const taken = queue.splice(0, most);
    if (queue.length === 0) this.#queues.delete(clientID);
    this.#parts.onQueued(clientID, queue.length);
    for (const task of taken) {
      task.status = taskStatus.processing;
      task.updatedMs = this.#parts.now();
    }
    if (taken.length > 0) this.#parts.keep(taken);
    return taken.map(({ id, type, payload, createdMs, maxRetries = this.#limits.maxRetries }) => ({
      id,
      type,
      payload,
      createdMs: BigInt(createdMs),
      maxRetries,
    }));
  }

  /** Returns false for each task that does not belong to this client. */
  complete(clientID: string, outcomes: readonly ValueOf<typeof taskOutcome>[]): boolean[] {
    const ended: Task[] = [];
    const known = outcomes.map(({ id, status, message }) => {
      const task = this.#tasks.get(id);
      if (task === undefined || task.clientID !== clientID) return false;
      if (task.status !== taskStatus.pending && task.status !== taskStatus.processing) return true;
      this.#end(task, status === taskStatus.success ? taskStatus.success : taskStatus.failed, message);
      ended.push(task);
      return true;
    });
    this.#keepEnded(ended);
    return known;
  }

  query(id: string): ValueOf<typeof taskState> | undefined {
    const task = this.#tasks.get(id);
    if (task === undefined) return undefined;
    const { type, status, createdMs, updatedMs, clientID, message } = task;
    return { id, type, status, createdMs: BigInt(createdMs), updatedMs: BigInt(updatedMs), clientID, message };
  }

  /** Fails tasks that were pending or running for too long. */
  sweep(): void {
    const now = this.#parts.now();
    const ended: Task[] = [];
    for (const task of this.#tasks.values()) {
      const limitMs =
        task.status === taskStatus.pending ? this.#limits.pendingMs : task.status === taskStatus.processing ? this.#limits.processingMs : Infinity;
      if (now - task.updatedMs <= limitMs) continue;
      const queue = this.#queues.get(task.clientID);
      if (queue?.includes(task)) {
        queue.splice(queue.indexOf(task), 1);
        if (queue.length === 0) this.#queues.delete(task.clientID);
        this.#parts.onQueued(task.clientID, queue.length);
      }
      this.#end(task, taskStatus.failed, `not ended within ${limitMs} ms`);
      ended.push(task);
    }
    this.#keepEnded(ended);
  }

  #end(task: Task, status: number, message: string): void {
    task.status = status;
    task.message = message.slice(0, task.type === taskType.command ? MAX_COMMAND_BYTES : MAX_MESSAGE_BYTES);
    task.updatedMs = this.#parts.now();
  }

  #keepEnded(tasks: readonly Task[]): void {
    if (tasks.length === 0) return;
    this.#parts.keep(tasks);
    this.#ended.push(...tasks.map(({ id }) => id));
    const oldest = this.#ended.splice(0, Math.max(0, this.#ended.length - this.#limits.maxTasks));
    for (const id of oldest) this.#tasks.delete(id);
    if (oldest.length > 0) this.#parts.forget(oldest);
  }
}
