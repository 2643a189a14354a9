// The records of the metadata server: a map with leases and bounds; a change shows once the journal behind it has it.
import { Failure, fail } from "@svc/contract/failures.ts";
import { type Change, frameBytes } from "./frames.ts";

/** A file of the journal, as far as the records care: how many of its bytes are of records that stand. */
export type Place = { liveBytes: number };

export type Stored = {
  readonly value: Buffer;
  /** undefined: until DELETE. */
  readonly leaseMs: number | undefined;
  readonly expiresAtMs: number;
  readonly place: Place | undefined;
};

/** Takes changes, all or none of them, and says where they lie. @throws the reason when none was kept. */
export type Journal = {
  write(changes: readonly Change[]): Promise<Place>;
  /** Rewrites a file that is mostly out of date, if there is one; called between two writes. On a full disk any such file is worth it. */
  tidy(records: Records, isDiskFull: boolean): Promise<boolean>;
};

export type RecordLimits = { readonly maxKeys: number; readonly maxTotalBytes: number };

/** What a record takes beside its key and value, measured: the map's entry, the buffer and its memory's own header. */
const OVERHEAD_BYTES = 400;
/** Expired keys are looked for among this many at a time. */
const SWEEP_STEP = 5000;

type Pending = { readonly change: Change; done(error: unknown, existed: boolean): void };

export class Records {
  readonly #records = new Map<string, Stored>();
  readonly #limits: RecordLimits;
  readonly #journal: Journal | undefined;
  readonly #now: () => number;
  #pending: Pending[] = [];
  /** Keys with a change that is not yet kept, and how often. */
  readonly #unkept = new Map<string, number>();
  #unkeptBytes = 0;
  #writing: Promise<void> | undefined;
  #lookers: (() => void)[] = [];
  #bytes = 0;
  #expiredMeanwhile = 0;
  #sweeping: Iterator<[string, Stored]> | undefined;

  /** `now`: milliseconds of a monotonic clock. */
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

  /** What a journal held at the start. A lease begins anew: its owner could not renew it while the server was away. */
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

  /** A change of it is on its way. */
  isUnkept(key: string): boolean {
    return this.#unkept.has(key);
  }

  /** As get, after what is on its way for this key is kept or refused: a key that a reader was told is gone stays gone. */
  async getKept(key: string): Promise<Buffer | undefined> {
    while (this.get(key) === undefined && this.#unkept.has(key)) await new Promise<void>((resolve) => this.#lookers.push(resolve));
    return this.get(key);
  }

  /** Also what has expired and was not looked at since: for the journal. */
  stored(key: string): Stored | undefined {
    return this.#records.get(key);
  }

  /** Settles once the change is kept. @throws CAPACITY_EXHAUSTED when there is no room, or the journal's failure; then nothing changed. */
  async put(key: string, value: Buffer, leaseMs: number | undefined): Promise<void> {
    const before = this.#records.get(key);
    const grows = value.length - (before?.value.length ?? -(Buffer.byteLength(key) + OVERHEAD_BYTES));
    if (before === undefined && this.#records.size + this.#unkept.size >= this.#limits.maxKeys)
      fail("CAPACITY_EXHAUSTED", `${this.#limits.maxKeys} keys are stored; delete some, or raise metadata.max_keys`);
    if (this.#bytes + this.#unkeptBytes + grows > this.#limits.maxTotalBytes)
      fail("CAPACITY_EXHAUSTED", `${this.#bytes} bytes are stored; delete some, or raise metadata.max_total_bytes (${this.#limits.maxTotalBytes})`);
    const change = { key, value, leaseMs };
    // A lease renewed with the same value changes nothing that would have to be read back.
    const renewsOnly = before !== undefined && before.leaseMs === leaseMs && !this.#unkept.has(key) && before.value.equals(value);
    if (this.#journal === undefined || renewsOnly) this.#apply(change, before?.place);
    else await this.#keep(change);
  }

  /** False when there was no such key. */
  async delete(key: string): Promise<boolean> {
    const found = this.#records.get(key);
    if (found === undefined && !this.#unkept.has(key)) return false;
    const isAlive = found === undefined || found.expiresAtMs > this.#now();
    const change = { key, value: undefined, leaseMs: undefined };
    const existed = this.#journal === undefined ? this.#apply(change, undefined) : await this.#keep(change);
    return existed && isAlive;
  }

  *withPrefix(prefix: string): Generator<[string, Buffer] | undefined> {
    // Undefined for each that does not match: whoever reads can pause.
    for (const [key, stored] of this.#records) yield key.startsWith(prefix) && stored.expiresAtMs > this.#now() ? [key, stored.value] : undefined;
  }

  /** Forgets what has expired, a step at a time; how many since the call before. */
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
  /** Whether a sweep has more to look at. */
  get isSweeping(): boolean {
    return this.#sweeping !== undefined;
  }

  /** Settles when nothing is on its way to the journal any more. */
  async settled(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing;
  }

  /** A key that expired is gone whether or not the journal can say so; if it cannot, the key comes back with a restart, for one more lease. */
  #expire(key: string): void {
    const change = { key, value: undefined, leaseMs: undefined };
    this.#apply(change, undefined);
    // Behind a change that is on its way this deletion would take what that change puts.
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

  /** What came while one write was under way is the next one. */
  async #write(): Promise<void> {
    // The changes of one turn of the loop go together.
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
      // Where there is no room for values there is for deletions, which make room.
      if (deletes.length === batch.length) for (const { done } of deletes) done(error, false);
      else if (deletes.length > 0) await this.#writeBatch(deletes);
    }
  }

  /** What could not be rewritten stays as it is, and is tried again. */
  #tidy(isDiskFull: boolean): Promise<boolean> {
    return (this.#journal as Journal).tidy(this, isDiskFull).catch(() => false);
  }

  /** Whether the key was there. */
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

  /** The same record at another place of the journal, which keeps its lease. */
  move(key: string, place: Place): void {
    const before = this.#records.get(key);
    if (before === undefined) return;
    const bytes = frameBytes({ key, value: before.value, leaseMs: before.leaseMs });
    if (before.place !== undefined) before.place.liveBytes -= bytes;
    place.liveBytes += bytes;
    this.#records.set(key, { ...before, place });
  }
}
