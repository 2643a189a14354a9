// Drain jobs: segments are emptied by move tasks that the holders' clients execute; the jobs survive the master.
import { setImmediate as breathe } from "node:timers/promises";
import { codes } from "../rpc/codes.ts";
import type { Expected } from "../rpc/schema.ts";
import { type NativeMaster, noteKinds, type SegmentRow, segmentRows } from "./native.ts";
import { newID, type Tasks, taskStatus, taskType } from "./tasks.ts";

export const jobStatus = ["CREATED", "PLANNING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED"] as const;
const [RUNNING, SUCCEEDED, FAILED, CANCELED] = [2, 3, 4, 5];
const segmentState = { mounted: 1, draining: 2, drained: 3 } as const;

const SLICE = 5_000;
const MAX_TRIES = 3;
const MAX_JOBS = 1_000;
/** Bounds the names of objects that could not be moved, which are remembered so that they are not retried forever. */
const MAX_GIVEN_UP = 10_000;
export const MAX_CONCURRENCY = 1_000;

type Unit = { readonly tenant: string; readonly key: string; readonly sizeBytes: number; readonly source: string; tries: number; taskID: string };

export type Job = {
  readonly id: string;
  readonly segments: readonly string[];
  readonly targets: readonly string[];
  readonly maxConcurrency: number;
  readonly createdMs: number;
  status: number;
  updatedMs: number;
  succeeded: number;
  failed: number;
  blocked: number;
  migratedBytes: number;
  message: string;
  active: Unit[];
  givenUp: string[];
};

export type DrainSpec = { readonly segments: readonly string[]; readonly targets: readonly string[]; readonly maxConcurrency: number };

const nameOf = (unit: { tenant: string; key: string }) => `${unit.tenant}/${unit.key}`;

//   running --no object is left--> succeeded     --cancel--> canceled
//      \---- only objects that could not be moved are left ----> failed
export class DrainJobs {
  readonly #native: NativeMaster;
  readonly #tasks: Tasks;
  readonly #now: () => number;
  readonly #jobs = new Map<string, Job>();
  #ticking = false;

  constructor(native: NativeMaster, tasks: Tasks, now: () => number) {
    this.#native = native;
    this.#tasks = tasks;
    this.#now = now;
  }

  /** Restores the jobs from the log. */
  restore(): void {
    for (const text of this.#native.notes(noteKinds.job)) {
      const job = JSON.parse(text) as Job;
      this.#jobs.set(job.id, job);
    }
  }

  get all(): readonly Job[] {
    return [...this.#jobs.values()].sort((a, b) => a.createdMs - b.createdMs);
  }

  find(id: string): Job | undefined {
    return this.#jobs.get(id);
  }

  create({ segments, targets, maxConcurrency }: DrainSpec): Expected<Job> {
    const rows = segmentRows(this.#native);
    const there = (name: string) => rows.some((row) => row.name === name);
    if (![...segments, ...targets].every(there)) return { ok: false, code: codes.SEGMENT_NOT_FOUND };
    if (targets.some((name) => segments.includes(name))) return { ok: false, code: codes.INVALID_PARAMS };
    if (this.#isBusy(segments)) return { ok: false, code: codes.UNAVAILABLE_IN_CURRENT_STATUS };
    this.#trim();
    if (this.#jobs.size >= MAX_JOBS) return { ok: false, code: codes.TASK_PENDING_LIMIT_EXCEEDED };
    const now = this.#now();
    const counts = { succeeded: 0, failed: 0, blocked: 0, migratedBytes: 0 };
    const job: Job = {
      id: newID(),
      segments,
      targets,
      maxConcurrency,
      createdMs: now,
      updatedMs: now,
      status: RUNNING,
      message: "",
      active: [],
      givenUp: [],
      ...counts,
    };
    if (!this.#keep(job)) return { ok: false, code: codes.PERSISTENT_FAIL };
    this.#jobs.set(job.id, job);
    this.#setStates(job, segmentState.mounted, segmentState.draining);
    return { ok: true, value: job };
  }

  /** Cancels the job; running moves finish by themselves. */
  cancel(job: Job): number {
    if (job.status !== RUNNING) return codes.UNAVAILABLE_IN_CURRENT_STATUS;
    this.#end(job, CANCELED, "canceled");
    this.#setStates(job, segmentState.draining, segmentState.mounted);
    return codes.OK;
  }

  /** Lets segments that a job emptied, or failed to empty, accept objects again; refused while a job still empties one of them. */
  undrain(segments: readonly string[]): number {
    const rows = segmentRows(this.#native);
    if (!segments.every((name) => rows.some((row) => row.name === name))) return codes.SEGMENT_NOT_FOUND;
    if (this.#isBusy(segments)) return codes.UNAVAILABLE_IN_CURRENT_STATUS;
    if (!this.#native.canLog()) return codes.PERSISTENT_FAIL;
    const isEmptied = ({ state }: SegmentRow) => state === segmentState.draining || state === segmentState.drained;
    for (const row of rows) if (segments.includes(row.name) && isEmptied(row)) this.#native.setState(row.number, segmentState.mounted);
    return codes.OK;
  }

  #isBusy(segments: readonly string[]): boolean {
    return this.all.some((job) => job.status === RUNNING && job.segments.some((name) => segments.includes(name)));
  }

  /** Advances each running job once. */
  async tick(): Promise<void> {
    if (this.#ticking) return;
    this.#ticking = true;
    try {
      for (const job of this.#jobs.values()) if (job.status === RUNNING) await this.#advance(job);
    } finally {
      this.#ticking = false;
    }
  }

  async #advance(job: Job): Promise<void> {
    const before = JSON.stringify(job);
    job.active = job.active.filter((unit) => !this.#ended(job, unit));
    const left = await this.#plan(job);
    if (job.status === RUNNING && job.active.length === 0 && left === 0) {
      const done = job.givenUp.length === 0;
      this.#end(job, done ? SUCCEEDED : FAILED, done ? "" : `${job.givenUp.length} objects could not be moved`);
      if (done) this.#setStates(job, segmentState.draining, segmentState.drained);
    } else if (JSON.stringify(job) !== before) {
      job.updatedMs = this.#now();
      this.#keep(job);
    }
  }

  /** Returns true if the move of this object has ended. */
  #ended(job: Job, unit: Unit): boolean {
    const state = this.#tasks.query(unit.taskID);
    if (state?.status === taskStatus.pending || state?.status === taskStatus.processing) return false;
    if (state?.status === taskStatus.success) {
      job.succeeded++;
      job.migratedBytes += unit.sizeBytes;
      return true;
    }
    // An object that was removed meanwhile needs no move.
    if (this.#native.holdersOf(unit.key, unit.tenant).code === codes.OBJECT_NOT_FOUND) return true;
    if (unit.tries < MAX_TRIES) return !this.#begin(job, unit);
    job.failed++;
    if (job.givenUp.length < MAX_GIVEN_UP) job.givenUp.push(nameOf(unit));
    return true;
  }

  /** Starts moves up to the job's bound. Returns the number of objects that still have to be moved. */
  async #plan(job: Job): Promise<number> {
    const known = new Set([...job.active.map(nameOf), ...job.givenUp]);
    let left = 0;
    let blocked = 0;
    for (const row of segmentRows(this.#native).filter(({ name }) => job.segments.includes(name))) {
      for (let cursor = 1; cursor !== 0 && job.active.length < job.maxConcurrency; ) {
        const { next, objects } = this.#native.objectsOn(row.number, cursor, SLICE);
        cursor = next;
        for (const { tenant, key, sizeBytes, movable } of objects) {
          if (known.has(nameOf({ tenant, key }))) continue;
          left++;
          if (job.active.length >= job.maxConcurrency) break;
          const unit: Unit = { tenant, key, sizeBytes, source: row.name, tries: 0, taskID: "" };
          if (movable && this.#begin(job, unit)) job.active.push(unit);
          else blocked++;
        }
        await breathe();
        if (job.status !== RUNNING) return left;
      }
      if (job.active.length >= job.maxConcurrency) left++;
    }
    job.blocked = blocked;
    return left;
  }

  #begin(job: Job, unit: Unit): boolean {
    const rows = segmentRows(this.#native);
    const target = targetOf(job, unit, rows);
    const source = rows.find((row) => row.name === unit.source && !row.silent && !row.awaiting);
    if (target === undefined || source === undefined) return false;
    const payload = { tenant_id: unit.tenant, key: unit.key, source: unit.source, target };
    const created = this.#tasks.create(taskType.move, source.clientID, payload);
    if (!created.ok) return false;
    unit.taskID = created.value;
    unit.tries++;
    return true;
  }

  #end(job: Job, status: number, message: string): void {
    job.status = status;
    job.message = message;
    job.updatedMs = this.#now();
    job.active = [];
    this.#keep(job);
  }

  #setStates(job: Job, from: number, to: number): void {
    for (const row of segmentRows(this.#native)) if (job.segments.includes(row.name) && row.state === from) this.#native.setState(row.number, to);
  }

  #keep(job: Job): boolean {
    return this.#native.keepNotes(noteKinds.job, [job.id, JSON.stringify(job)]);
  }

  /** Forgets the oldest ended jobs to stay within the bound. */
  #trim(): void {
    for (const job of this.all) {
      if (this.#jobs.size < MAX_JOBS) return;
      if (job.status === RUNNING) continue;
      this.#jobs.delete(job.id);
      this.#native.dropNotes([job.id]);
    }
  }
}

/** Returns the emptiest of the job's targets, or of all other segments of the same tier. */
function targetOf(job: Job, unit: Unit, rows: readonly SegmentRow[]): string | undefined {
  const isNof = rows.some(({ name, nof }) => name === unit.source && nof);
  const free = (row: SegmentRow) => BigInt(row.sizeBytes) - BigInt(row.usedBytes);
  const may = rows.filter(
    (row) =>
      (job.targets.length === 0 ? !job.segments.includes(row.name) && row.nof === isNof : job.targets.includes(row.name)) &&
      row.state === segmentState.mounted &&
      !row.silent &&
      !row.awaiting &&
      !row.unreachable &&
      free(row) >= BigInt(unit.sizeBytes),
  );
  return may.reduce<SegmentRow | undefined>((best, row) => (best === undefined || free(row) > free(best) ? row : best), undefined)?.name;
}
