// Order within one publisher's stream: the batch sequence decides, never a timestamp. Pure; subscription.ts does the effects.
//
//   unknown ──first batch──▶ following ──gap──▶ waiting ──missing batches came──▶ following
//                               ▲  └─lower number, another batch: restart─┐        │
//                               └──────────────── from 0 ◀───────────────┘   given up: jump
//
// A store's replay may be a dump: every key that it holds, under numbers that other batches had before. Live batches wait until the dump
// ends.

/** The maximum number of pending batches of one publisher. */
export const MAX_WAITING = 20_000;

/** The memory of batches that wait for missing ones: a bound for all publishers together, and a quarter of it for each. */
export class PendingBudget {
  readonly limitBytes: number;
  bytes = 0;

  constructor(limitBytes: number) {
    this.limitBytes = limitBytes;
  }

  /** Returns whether a publisher that keeps `own` bytes may keep `more` in addition. */
  takes(more: number, own: number): boolean {
    return this.bytes + more <= this.limitBytes && own + more <= this.limitBytes / 4;
  }
}

/** `late`: a replay has overtaken the batch and brought what it contains. */
export type Verdict = "apply" | "wait" | "behind" | "late" | "full";

/**
 * The fate of a batch. For a replay's batch whose number was taken in before, `other` means that another batch had the number, `unknown`
 * that its fingerprint is forgotten.
 */
export type Offered = "applied" | "waits" | "duplicate" | "other" | "unknown" | "full";

export class Order {
  /** The number that follows the last one taken in; undefined before the first. `applied`, `resume`, `goTo`, `jump` and `restart` set it. */
  next: number | undefined;
  readonly #waiting = new Map<number, Buffer>();
  readonly #budget: PendingBudget;
  #bytes = 0;
  #paused = false;
  #partial = false;
  /** The highest number of a live batch: one publisher's live batches have rising numbers. */
  #lastLive = -1;

  constructor(budget: PendingBudget) {
    this.#budget = budget;
  }

  /** Decides what to do with a batch of this number. */
  decide(sequence: number, sizeBytes: number, source: "event" | "replay" = "event"): Verdict {
    const verdict = this.#verdict(sequence, sizeBytes, source);
    if (source === "event" && verdict !== "full") this.#lastLive = Math.max(this.#lastLive, sequence);
    return verdict;
  }

  #verdict(sequence: number, sizeBytes: number, source: "event" | "replay"): Verdict {
    if (this.next !== undefined && sequence < this.next) return source === "event" && sequence > this.#lastLive ? "late" : "behind";
    if (this.next === undefined || (sequence === this.next && !(source === "event" && this.#waits))) return "apply";
    if (this.#waiting.has(sequence)) return "wait";
    return this.#waiting.size >= MAX_WAITING || !this.#budget.takes(sizeBytes, this.#bytes) ? "full" : "wait";
  }

  /** Keeps a batch; returns false if another batch of this number waits, which stays. */
  wait(sequence: number, payload: Buffer): boolean {
    const waiting = this.#waiting.get(sequence);
    if (waiting !== undefined) return waiting.equals(payload);
    // The payload is copied, since the connection reads into its buffer again.
    this.#waiting.set(sequence, Buffer.from(payload));
    this.#count(payload.length);
    return true;
  }

  applied(sequence: number): void {
    // The batch may have come both live and by replay.
    this.#drop(sequence);
    this.next = sequence + 1;
  }

  /** Pauses live batches while a store's replay is read: of two batches with one number, the replay's counts. */
  hold(): void {
    this.#paused = true;
  }

  /** The batches from here on are a dump, a part of which is worthless. */
  beginDump(): void {
    this.#partial = true;
  }

  /** Ends the replay; `isWhole` says whether its end mark came. */
  release(isWhole: boolean): void {
    this.#paused = false;
    if (isWhole) this.#partial = false;
  }

  /** True if only a part of a dump was taken in. */
  get partial(): boolean {
    return this.#partial;
  }

  /** True while live batches wait for a replay that is under way. */
  get isPaused(): boolean {
    return this.#paused;
  }

  get #waits(): boolean {
    return this.#paused || this.#partial;
  }

  /** Removes and returns the pending batch that is due. */
  takeDue(): Buffer | undefined {
    return this.next === undefined ? undefined : this.#drop(this.next);
  }

  /** True if the batch that is due waits here. */
  get due(): boolean {
    return this.next !== undefined && !this.#waits && this.#waiting.has(this.next);
  }

  /** True while batches wait for one that did not come, or a dump for the rest of it. */
  get gap(): boolean {
    return this.#partial || (this.#waiting.size > 0 && !(this.next !== undefined && this.#waiting.has(this.next)));
  }

  /** Restores the state of a snapshot: all batches before this number were taken in. */
  resume(next: number, isPartial: boolean): void {
    this.next = next;
    this.#partial = isPartial;
    this.#lastLive = next - 1;
  }

  /** Continues from a number, and drops pending batches before it. */
  goTo(sequence: number): void {
    this.next = sequence;
    this.#partial = false;
    for (const waiting of [...this.#waiting.keys()]) if (waiting < sequence) this.#drop(waiting);
  }

  /** Gives up on the missing batches: continues from a number, or with the first pending batch. */
  jump(to?: number): void {
    let first = to;
    if (to === undefined) for (const sequence of this.#waiting.keys()) if (first === undefined || sequence < first) first = sequence;
    if (first !== undefined) this.goTo(first);
    this.#partial = false;
  }

  /** Another publisher process is there: nothing known of the former order applies. */
  restart(): void {
    this.next = 0;
    this.#partial = false;
    this.#lastLive = -1;
    this.clear();
  }

  clear(): void {
    this.#waiting.clear();
    this.#count(-this.#bytes);
  }

  #drop(sequence: number): Buffer | undefined {
    const payload = this.#waiting.get(sequence);
    if (payload === undefined) return undefined;
    this.#waiting.delete(sequence);
    this.#count(-payload.length);
    return payload;
  }

  #count(bytes: number): void {
    this.#bytes += bytes;
    this.#budget.bytes += bytes;
  }
}
