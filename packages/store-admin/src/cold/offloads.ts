// Requested offloads: each fills a schedulable device of one owner with objects from its memory, batch by batch.
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Numbers } from "../metadata/numbers.ts";
import type { ColdTier } from "./cold-tier.ts";
import { type Device, isSchedulable } from "./device.ts";
import { type Owner, type Owners, specOf } from "./owners.ts";

const MAX_BATCH = 16;
const MAX_RUNNING = 64;
const KEPT_MS = 600_000;
const MAX_KEPT = 10_000;

// pending ── its owner is live ──> running ── nothing left, or the requested number reached ──> succeeded
//     └──────── no live owner, no schedulable device ──┴── the owner refused, ended, or restarted ──> failed
export type OffloadTask = {
  readonly id: string;
  readonly tenant: string;
  readonly stableID: string;
  readonly maxTasks: number;
  readonly createdMs: number;
  updatedMs: number;
  epoch: number | null;
  state: "pending" | "running" | "succeeded" | "failed";
  materialized: number;
  batches: number;
  lastError: string;
};

export class Offloads {
  readonly #tier: ColdTier;
  readonly #owners: Owners;
  readonly #numbers: Numbers;
  readonly #log: Log;
  readonly #tasks = new Map<string, OffloadTask>();
  readonly #running = new Set<Promise<void>>();
  #isClosing = false;

  constructor(parts: { tier: ColdTier; owners: Owners; numbers: Numbers; log: Log }) {
    this.#tier = parts.tier;
    this.#owners = parts.owners;
    this.#numbers = parts.numbers;
    this.#log = parts.log;
  }

  /** @throws TOO_MANY_REQUESTS. */
  async trigger(tenant: string, stableID: string, maxTasks: number): Promise<OffloadTask> {
    if (this.#running.size >= MAX_RUNNING) fail("TOO_MANY_REQUESTS", `${MAX_RUNNING} offloads are in progress, the maximum: try again later`);
    const id = `cold-tier-offload-${await this.#numbers.take()}`;
    const now = Date.now();
    const begun = { epoch: null, state: "pending", materialized: 0, batches: 0, lastError: "" } as const;
    const task: OffloadTask = { id, tenant, stableID, maxTasks, createdMs: now, updatedMs: now, ...begun };
    this.#forgetOld(now);
    this.#tasks.set(id, task);
    const running: Promise<void> = this.#run(task).finally(() => this.#running.delete(running));
    this.#running.add(running);
    return task;
  }

  find(tenant: string, id: string): OffloadTask {
    this.#forgetOld(Date.now());
    const task = this.#tasks.get(id);
    return task?.tenant === tenant ? task : fail("STORE_KEY_NOT_FOUND", `cold-tier offload task ${id} was not found`);
  }

  all(tenant: string): OffloadTask[] {
    this.#forgetOld(Date.now());
    return [...this.#tasks.values()].filter((task) => task.tenant === tenant);
  }

  /** Counts the remembered offloads by state. */
  counts(): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const { state } of this.#tasks.values()) counts.set(state, (counts.get(state) ?? 0) + 1);
    return counts;
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    await Promise.all(this.#running);
  }

  async #run(task: OffloadTask): Promise<void> {
    try {
      const owner = await this.#owners.live(task.stableID);
      this.#set(task, { state: "running", epoch: owner.epoch });
      while (!this.#isClosing && task.materialized < task.maxTasks) {
        if (!(await this.#batch(task, owner))) break;
      }
      this.#set(task, { state: "succeeded" });
    } catch (error) {
      this.#set(task, { state: "failed", lastError: asFailure(error).message });
      this.#log.warn({ err: error, task: task.id, owner: task.stableID }, "an offload to the cold tier failed");
    }
  }

  /** Returns whether another batch may follow. */
  async #batch(task: OffloadTask, owner: Owner): Promise<boolean> {
    const device = await this.#deviceOf(task);
    const most = Math.min(batchOf(task), task.maxTasks - task.materialized);
    const { stored, hasEnded } = await this.#owners.ask(owner, { command: "offload", device: specOf(device, task.tenant), most });
    this.#set(task, { materialized: task.materialized + stored, batches: task.batches + 1 });
    // The next batch must know whether the device is full by now.
    await this.#tier.probe(task.tenant, device.definition.device_id);
    return stored > 0 && !hasEnded;
  }

  /** Chooses the device with the most free space. */
  async #deviceOf({ tenant, stableID }: OffloadTask): Promise<Device> {
    const freeBytes = ({ capacityBytes, usedBytes, reservedBytes }: Device) => (capacityBytes ?? Number.MAX_SAFE_INTEGER) - usedBytes - reservedBytes;
    const devices = (await this.#tier.list(tenant, { stableID })).filter(isSchedulable);
    const [most] = devices.sort((one, other) => freeBytes(other) - freeBytes(one));
    return most ?? fail("INVALID_REQUEST", `${stableID} has no schedulable device: register one, or enable or empty an existing one`);
  }

  #set(task: OffloadTask, change: Partial<OffloadTask>): void {
    Object.assign(task, change, { updatedMs: Date.now() });
  }

  #forgetOld(now: number): void {
    for (const [id, { state, updatedMs }] of this.#tasks) {
      const isEnded = state === "succeeded" || state === "failed";
      if (isEnded && (now - updatedMs > KEPT_MS || this.#tasks.size > MAX_KEPT)) this.#tasks.delete(id);
    }
  }
}

export const batchOf = ({ maxTasks }: OffloadTask): number => Math.min(MAX_BATCH, maxTasks);
