// The records of the metadata server: a map with leases and bounds, and a journal that may stand behind it.
import { fail } from "@svc/contract/failures.ts";

export type Stored = { readonly value: Buffer /** undefined: until DELETE. */; readonly leaseMs: number | undefined; readonly expiresAtMs: number };

/** Takes every change before it is acknowledged. */
export type Journal = {
  put(key: string, value: Buffer, leaseMs: number | undefined): void;
  delete(key: string): void;
  /** Calls back once everything above is safe. */
  whenSafe(done: (error?: Error) => void): void;
};

export type RecordLimits = { readonly maxKeys: number; readonly maxTotalBytes: number };

/** What a record takes beside its key and value. */
const OVERHEAD_BYTES = 100;

export class Records {
  readonly #records = new Map<string, Stored>();
  #expiredMeanwhile = 0;
  readonly #limits: RecordLimits;
  readonly #journal: Journal | undefined;
  readonly #now: () => number;
  #bytes = 0;

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
  load(key: string, value: Buffer, leaseMs: number | undefined): void {
    this.#place(key, value, leaseMs);
  }

  get(key: string): Buffer | undefined {
    const found = this.#records.get(key);
    if (found === undefined) return undefined;
    if (found.expiresAtMs > this.#now()) return found.value;
    this.#drop(key, found);
    this.#expiredMeanwhile++;
    return undefined;
  }

  /** @throws CAPACITY_EXHAUSTED when there is no room; then nothing changed. */
  put(key: string, value: Buffer, leaseMs: number | undefined): void {
    const before = this.#records.get(key);
    const grows = value.length - (before?.value.length ?? -(Buffer.byteLength(key) + OVERHEAD_BYTES));
    if (before === undefined && this.#records.size >= this.#limits.maxKeys)
      fail("CAPACITY_EXHAUSTED", `${this.#limits.maxKeys} keys are stored; delete some, or raise metadata.max_keys`);
    if (this.#bytes + grows > this.#limits.maxTotalBytes)
      fail("CAPACITY_EXHAUSTED", `${this.#bytes} bytes are stored; delete some, or raise metadata.max_total_bytes (${this.#limits.maxTotalBytes})`);
    this.#place(key, value, leaseMs);
    // A lease renewed with the same value changes nothing that would have to be read back.
    if (before === undefined || before.leaseMs !== leaseMs || !before.value.equals(value)) this.#journal?.put(key, value, leaseMs);
  }

  /** False when there was no such key. */
  delete(key: string): boolean {
    const found = this.#records.get(key);
    if (found === undefined) return false;
    const alive = found.expiresAtMs > this.#now();
    this.#drop(key, found);
    return alive;
  }

  *withPrefix(prefix: string): Generator<[string, Buffer]> {
    const now = this.#now();
    for (const [key, stored] of this.#records) if (key.startsWith(prefix) && stored.expiresAtMs > now) yield [key, stored.value];
  }

  /** Forgets what has expired; how many since the sweep before, those that were found expired when they were asked for among them. */
  sweep(): number {
    const now = this.#now();
    let gone = this.#expiredMeanwhile;
    this.#expiredMeanwhile = 0;
    for (const [key, stored] of this.#records) {
      if (stored.expiresAtMs > now) continue;
      this.#drop(key, stored);
      gone++;
    }
    return gone;
  }

  whenSafe(done: (error?: Error) => void): void {
    if (this.#journal === undefined) done();
    else this.#journal.whenSafe(done);
  }

  #place(key: string, value: Buffer, leaseMs: number | undefined): void {
    const before = this.#records.get(key);
    this.#bytes += value.length - (before?.value.length ?? -(Buffer.byteLength(key) + OVERHEAD_BYTES));
    this.#records.set(key, { value, leaseMs, expiresAtMs: leaseMs === undefined ? Number.POSITIVE_INFINITY : this.#now() + leaseMs });
  }

  #drop(key: string, stored: Stored): void {
    this.#records.delete(key);
    this.#bytes -= stored.value.length + Buffer.byteLength(key) + OVERHEAD_BYTES;
    this.#journal?.delete(key);
  }
}
