// The records of the metadata server: a map with leases and limits; a change becomes visible once the journal has stored it.
import { Failure, fail } from "@svc/contract/failures.ts";
import { type Change, frameBytes } from "./frames.ts";

/** A file of the journal as seen by the records: the number of bytes that belong to live records. */
export type Place = { liveBytes: number };

export type Stored = {
  readonly value: Buffer;
  /** Undefined for a record that stays until DELETE. */
  readonly leaseMs: number | undefined;
  readonly expiresAtMs: number;
  readonly place: Place | undefined;
};

/** Stores changes, all or none of them, and returns their file. @throws the reason when none was stored. */
export type Journal = {
  write(changes: readonly Change[]): Promise<Place>;
  /** Rewrites a mostly outdated file, if there is one; called between two writes. On a full disk any saving is worth it. */
  tidy(records: Records, isDiskFull: boolean): Promise<boolean>;
};

export type RecordLimits = { readonly maxKeys: number; readonly maxTotalBytes: number };

/** The measured overhead of a record in addition to its key and value: the map's entry, the buffer and its memory's header. */
const OVERHEAD_BYTES = 400;
/** The number of records that one sweep examines for expired keys. */
const SWEEP_STEP = 5000;

type Pending = { readonly change: Change; done(error: unknown, existed: boolean): void };

export class Records {
  readonly #records = new Map<string, Stored>();
  readonly #limits: RecordLimits;
  readonly #journal: Journal | undefined;
  readonly #now: () => number;
  #pending: Pending[] = [];
  /** Keys with pending changes, and the number of these. */
  readonly #unkept = new Map<string, number>();
  #unkeptBytes = 0;
  #writing: Promise<void> | undefined;
  #lookers: (() => void)[] = [];
  #bytes = 0;
  #expiredMeanwhile = 0;
  #sweeping: Iterator<[string, Stored]> | undefined;

  /** `now` returns milliseconds of a monotonic clock. */
  constructor(limits: RecordLimits, journal: Journal | undefined, now: () => number) {
    this.#limits = limits;
    this.#journal = journal;
    this.#now = now;
  }

  get size(): number {
    return this.#records.size;
  }
  get bytes(): number {
    return this.#bytes;
  }

  /** Loads a change from the journal. Its lease restarts, since the owner could not renew it while the server was down. */
  load(change: Change, place: Place): void {
    this.#apply(change, place);
  }

  get(key: string): Buffer | undefined {
    const found = this.#records.get(key);
    if (found === undefined) return undefined;
    if (found.expiresAtMs > this.#now()) return found.value;
    this.#expire(key);
    this.#expiredMeanwhile++;
    return undefined;
  }

  /** Returns true if a change of the key is pending. */
  isUnkept(key: string): boolean {
    return this.#unkept.has(key);
  }

  /** Like `get`, but waits for pending changes of the key, so that a reader that has seen a deletion never sees the key again. */
  async getKept(key: string): Promise<Buffer | undefined> {
    while (this.get(key) === undefined && this.#unkept.has(key)) await new Promise<void>((resolve) => this.#lookers.push(resolve));
    return this.get(key);
  }

  /** Returns expired records that were not swept yet as well; for the journal. */
  stored(key: string): Stored | undefined {
    return this.#records.get(key);
  }

  /** Resolves once the change is stored. @throws CAPACITY_EXHAUSTED at a limit, or the journal's failure; then nothing changed. */
  async put(key: string, value: Buffer, leaseMs: number | undefined): Promise<void> {
    const before = this.#records.get(key);
    const grows = value.length - (before?.value.length ?? -(Buffer.byteLength(key) + OVERHEAD_BYTES));
    if (before === undefined && this.#records.size + this.#unkept.size >= this.#limits.maxKeys)
      fail("CAPACITY_EXHAUSTED", `${this.#limits.maxKeys} keys are stored; delete some, or raise metadata.max_keys`);
    if (this.#bytes + this.#unkeptBytes + grows > this.#limits.maxTotalBytes)
      fail("CAPACITY_EXHAUSTED", `${this.#bytes} bytes are stored; delete some, or raise metadata.max_total_bytes (${this.#limits.maxTotalBytes})`);
    const change = { key, value, leaseMs };
    // Renewing a lease with the same value changes nothing that a restart would have to restore.
    const renewsOnly = before !== undefined && before.leaseMs === leaseMs && !this.#unkept.has(key) && before.value.equals(value);
    if (this.#journal === undefined || renewsOnly) this.#apply(change, before?.place);
    else await this.#keep(change);
  }

  /** Returns false if there was no such key. */
  async delete(key: string): Promise<boolean> {
    const found = this.#records.get(key);
    if (found === undefined && !this.#unkept.has(key)) return false;
    const isAlive = found === undefined || found.expiresAtMs > this.#now();
    const change = { key, value: undefined, leaseMs: undefined };
    const existed = this.#journal === undefined ? this.#apply(change, undefined) : await this.#keep(change);
    return existed && isAlive;
  }

  *withPrefix(prefix: string): Generator<[string, Buffer] | undefined> {
    // Yields undefined for each record that does not match, so that the reader can pause.
    for (const [key, stored] of this.#records) yield key.startsWith(prefix) && stored.expiresAtMs > this.#now() ? [key, stored.value] : undefined;
  }

  /** Removes expired records, a bounded number per call. Returns how many expired since the previous call. */
  sweep(): number {
    const now = this.#now();
    let gone = this.#expiredMeanwhile;
    this.#expiredMeanwhile = 0;
    this.#sweeping ??= this.#records.entries();
    for (let step = 0; step < SWEEP_STEP; step++) {
      const { value, done } = this.#sweeping.next();
      if (done === true) {
        this.#sweeping = undefined;
        break;
      }
      if (value[1].expiresAtMs > now) continue;
      this.#expire(value[0]);
      gone++;
    }
    return gone;
  }
  /** True if a sweep has more to examine. */
  get isSweeping(): boolean {
    return this.#sweeping !== undefined;
  }

  /** Resolves when no change is pending in the journal. */
  async settled(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing;
  }

  /** An expired key is gone even if the journal cannot store the deletion; in that case it returns after a restart for one more lease. */
  #expire(key: string): void {
    const change = { key, value: undefined, leaseMs: undefined };
    this.#apply(change, undefined);
    // While another change of the key is pending, a later deletion would remove the value that it stores.
    if (this.#journal !== undefined && !this.#unkept.has(key)) this.#keep(change).catch(() => {});
  }

  #keep(change: Change): Promise<boolean> {
    this.#unkept.set(change.key, (this.#unkept.get(change.key) ?? 0) + 1);
    this.#unkeptBytes += frameBytes(change);
    return new Promise((resolve, reject) => {
      this.#pending.push({
        change,
        done: (error, existed) => {
          const left = (this.#unkept.get(change.key) ?? 1) - 1;
          if (left === 0) this.#unkept.delete(change.key);
          else this.#unkept.set(change.key, left);
          this.#unkeptBytes -= frameBytes(change);
          if (error === undefined) resolve(existed);
          else reject(error);
        },
      });
      this.#writing ??= this.#write().finally(() => {
        this.#writing = undefined;
      });
    });
  }

  /** Changes that arrive during a write form the next batch. */
  async #write(): Promise<void> {
    // All changes of one event-loop tick are written together.
    await new Promise(setImmediate);
    while (this.#pending.length > 0) {
      const batch = this.#pending;
      this.#pending = [];
      await this.#writeBatch(batch);
      const lookers = this.#lookers;
      this.#lookers = [];
      for (const look of lookers) look();
      await this.#tidy(false);
    }
  }

  async #writeBatch(batch: readonly Pending[]): Promise<void> {
    try {
      const place = await (this.#journal as Journal).write(batch.map(({ change }) => change));
      for (const { change, done } of batch) done(undefined, this.#apply(change, place));
    } catch (error) {
      if (error instanceof Failure && error.name === "DISK_FULL" && (await this.#tidy(true))) return this.#writeBatch(batch);
      const deletes = batch.filter(({ change }) => change.value === undefined);
      for (const { change, done } of batch) if (change.value !== undefined) done(error, false);
      // Without space for values there may still be space for deletions, which free some.
      if (deletes.length === batch.length) for (const { done } of deletes) done(error, false);
      else if (deletes.length > 0) await this.#writeBatch(deletes);
    }
  }

  /** A file that could not be rewritten stays as it is, and is tried again. */
  #tidy(isDiskFull: boolean): Promise<boolean> {
    return (this.#journal as Journal).tidy(this, isDiskFull).catch(() => false);
  }

  /** Returns whether the key existed. */
  #apply({ key, value, leaseMs }: Change, place: Place | undefined): boolean {
    const before = this.#records.get(key);
    if (before !== undefined) {
      this.#bytes -= before.value.length + Buffer.byteLength(key) + OVERHEAD_BYTES;
      if (before.place !== undefined) before.place.liveBytes -= frameBytes({ key, value: before.value, leaseMs });
    }
    if (value === undefined) {
      this.#records.delete(key);
      return before !== undefined;
    }
    this.#bytes += value.length + Buffer.byteLength(key) + OVERHEAD_BYTES;
    if (place !== undefined) place.liveBytes += frameBytes({ key, value, leaseMs });
    this.#records.set(key, { value, leaseMs, expiresAtMs: leaseMs === undefined ? Number.POSITIVE_INFINITY : this.#now() + leaseMs, place });
    return before !== undefined;
  }

  /** Assigns a record to another file of the journal and keeps its lease. */
  move(key: string, place: Place): void {
    const before = this.#records.get(key);
    if (before === undefined) return;
    const bytes = frameBytes({ key, value: before.value, leaseMs: before.leaseMs });
    if (before.place !== undefined) before.place.liveBytes -= bytes;
    place.liveBytes += bytes;
    this.#records.set(key, { ...before, place });
  }
}
