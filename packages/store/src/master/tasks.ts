// Copy and move tasks: queued for the client that holds the source, fetched by it, and ended by its word.
import { randomBytes } from "node:crypto";
import type { ValueOf } from "../rpc/schema.ts";
import type { taskAssignment, taskOutcome, taskState } from "../rpc/shapes.ts";

export const taskType = { copy: 0, move: 1 } as const;
export const taskStatus = { pending: 0, processing: 1, failed: 2, success: 3 } as const;

type Task = {
  readonly id: string;
  readonly type: number;
  readonly clientID: string;
  readonly payload: string;
  readonly createdMs: number;
  status: number;
  updatedMs: number;
  message: string;
};

export type TaskLimits = { readonly maxTasks: number; readonly pendingMs: number; readonly processingMs: number; readonly maxRetries: number };

export function newID(): string {
  const hex = randomBytes(16).toString("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

//   pending --fetch--> processing --complete--> success | failed
//      \------too long-------\-----too long-----> failed       (ended ones are kept until there are too many)
export class Tasks {
  readonly #limits: TaskLimits;
  readonly #now: () => number;
  /** Tells how many tasks wait for a client. */
  readonly #onQueued: (clientID: string, count: number) => void;
  readonly #tasks = new Map<string, Task>();
  readonly #queues = new Map<string, Task[]>();
  #ended: string[] = [];

  constructor(limits: TaskLimits, onQueued: (clientID: string, count: number) => void, now: () => number) {
    this.#limits = limits;
    this.#onQueued = onQueued;
    this.#now = now;
  }

  get size(): number {
    return this.#tasks.size;
  }

  /** Undefined when too many are under way. */
  create(type: number, clientID: string, payload: object): string | undefined {
    if (this.#tasks.size - this.#ended.length >= this.#limits.maxTasks) return undefined;
    const now = this.#now();
    const task: Task = {
      id: newID(),
      type,
      clientID,
      payload: JSON.stringify(payload),
      createdMs: now,
      status: taskStatus.pending,
      updatedMs: now,
      message: "",
    };
    this.#tasks.set(task.id, task);
    const queue = this.#queues.get(clientID) ?? [];
    queue.push(task);
    this.#queues.set(clientID, queue);
    this.#onQueued(clientID, queue.length);
    return task.id;
  }

  fetch(clientID: string, most: number): ValueOf<typeof taskAssignment>[] {
    const queue = this.#queues.get(clientID) ?? [];
    const taken = queue.splice(0, most);
    if (queue.length === 0) this.#queues.delete(clientID);
    this.#onQueued(clientID, queue.length);
    return taken.map((task) => {
      task.status = taskStatus.processing;
      task.updatedMs = this.#now();
      return { id: task.id, type: task.type, payload: task.payload, createdMs: BigInt(task.createdMs), maxRetries: this.#limits.maxRetries };
    });
  }

  /** False when there is no such task of this client. */
  complete(clientID: string, outcome: ValueOf<typeof taskOutcome>): boolean {
    const task = this.#tasks.get(outcome.id);
    if (task === undefined || task.clientID !== clientID) return false;
    if (task.status === taskStatus.pending || task.status === taskStatus.processing)
      this.#end(task, outcome.status === taskStatus.success ? taskStatus.success : taskStatus.failed, outcome.message);
    return true;
  }

  query(id: string): ValueOf<typeof taskState> | undefined {
    const task = this.#tasks.get(id);
    if (task === undefined) return undefined;
    const { type, status, createdMs, updatedMs, clientID, message } = task;
    return { id, type, status, createdMs: BigInt(createdMs), updatedMs: BigInt(updatedMs), clientID, message };
  }

  /** Fails what waited or ran for too long. */
  sweep(): void {
    const now = this.#now();
    for (const task of this.#tasks.values()) {
      const limitMs =
        task.status === taskStatus.pending ? this.#limits.pendingMs : task.status === taskStatus.processing ? this.#limits.processingMs : Infinity;
      if (now - task.updatedMs <= limitMs) continue;
      const queue = this.#queues.get(task.clientID);
      if (queue?.includes(task)) {
        queue.splice(queue.indexOf(task), 1);
        if (queue.length === 0) this.#queues.delete(task.clientID);
        this.#onQueued(task.clientID, queue.length);
      }
      this.#end(task, taskStatus.failed, `not ended within ${limitMs} ms`);
    }
  }

  #end(task: Task, status: number, message: string): void {
    task.status = status;
    task.message = message.slice(0, 1024);
    task.updatedMs = this.#now();
    this.#ended.push(task.id);
    while (this.#ended.length > this.#limits.maxTasks) this.#tasks.delete(this.#ended.shift() as string);
  }
}
