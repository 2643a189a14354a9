// Order within one publisher's stream: the batch sequence decides, never a timestamp. Pure; subscription.ts does the effects.
//
//   unknown ──first batch──▶ following ──gap──▶ waiting ──missing batches came──▶ following
//                               ▲  └─lower number, another batch: restart─┐        │
//                               └──────────────── from 0 ◀───────────────┘   given up: jump
//
// A store's replay may be a dump: every key it holds, under numbers that other batches had before. Until its end what comes live waits.

/** Batches of one publisher that overtook missing ones, at most. */
export const MAX_WAITING = 20_000;

/** What batches may take that wait for missing ones: of all publishers, and a share of it for each. */
export class PendingBudget {
  readonly limitBytes: number;
  bytes = 0;

  constructor(limitBytes: number) {
    this.limitBytes = limitBytes;
  }

  /** Whether a publisher that has this much here may keep as much more. */
  takes(more: number, own: number): boolean {
    return this.bytes + more <= this.limitBytes && own + more <= this.limitBytes / 4;
  }
}

/** `late`: a replay has overtaken it and told what it says. */
export type Verdict = "apply" | "wait" | "behind" | "late" | "full";

/** Of a replay's batch whose number was taken in before: `other` was another batch, of `unknown` nobody can tell any more. */
export type Offered = "applied" | "waits" | "duplicate" | "other" | "unknown" | "full";

export class Order {
  /** The number that follows the last one taken in; undefined before the first. Set it by `applied`, `resume`, `goTo`, `jump` and `restart`. */
  next: number | undefined;
  readonly #waiting = new Map<number, Buffer>();
  readonly #room: PendingBudget;
  #bytes = 0;
  #paused = false;
  #partial = false;
  /** Of one publisher's live batches each has a higher number than the one before. */
  #lastLive = -1;

  constructor(room: PendingBudget) {
    this.#room = room;
  }

  /** What is to be done with a batch of this number. */
  judge(sequence: number, sizeBytes: number, source: "event" | "replay" = "event"): Verdict {
    const verdict = this.#verdict(sequence, sizeBytes, source);
    if (source === "event" && verdict !== "full") this.#lastLive = Math.max(this.#lastLive, sequence);
    return verdict;
  }

  #verdict(sequence: number, sizeBytes: number, source: "event" | "replay"): Verdict {
    if (this.next !== undefined && sequence < this.next) return source === "event" && sequence > this.#lastLive ? "late" : "behind";
    if (this.next === undefined || (sequence === this.next && !(source === "event" && this.#waits))) return "apply";
    if (this.#waiting.has(sequence)) return "wait";
    return this.#waiting.size >= MAX_WAITING || !this.#room.takes(sizeBytes, this.#bytes) ? "full" : "wait";
  }

  /** False where another batch of this number waits, which stays. */
  wait(sequence: number, payload: Buffer): boolean {
    const waiting = this.#waiting.get(sequence);
    if (waiting !== undefined) return waiting.equals(payload);
    // What it came in is read into again.
    this.#waiting.set(sequence, Buffer.from(payload));
    this.#count(payload.length);
    return true;
  }

  applied(sequence: number): void {
    // It may have come by two ways.
    this.#drop(sequence);
    this.next = sequence + 1;
  }

  /** A store's replay is read: its batches alone are taken in, and of two with one number its own. */
  hold(): void {
    this.#paused = true;
  }

  /** What is taken in from here on is a dump, of which a part is worth nothing. */
  beginDump(): void {
    this.#partial = true;
  }

  /** The replay is over; to its end mark, unless it failed. */
  release(isWhole: boolean): void {
    this.#paused = false;
    if (isWhole) this.#partial = false;
  }

  /** Whether only a part of a dump was taken in. */
  get partial(): boolean {
    return this.#partial;
  }

  /** Whether what comes live waits for a replay that is under way. */
  get isPaused(): boolean {
    return this.#paused;
  }

  get #waits(): boolean {
    return this.#paused || this.#partial;
  }

  /** The waiting batch whose turn it is. */
  takeDue(): Buffer | undefined {
    return this.next === undefined ? undefined : this.#drop(this.next);
  }

  /** Whether the batch whose turn it is waits here. */
  get due(): boolean {
    return this.next !== undefined && !this.#waits && this.#waiting.has(this.next);
  }

  /** Whether batches wait for one that did not come, or a dump for its rest. */
  get gap(): boolean {
    return this.#partial || (this.#waiting.size > 0 && !(this.next !== undefined && this.#waiting.has(this.next)));
  }

  /** As it was left: all before this number was taken in. */
  resume(next: number, isPartial: boolean): void {
    this.next = next;
    this.#partial = isPartial;
    this.#lastLive = next - 1;
  }

  /** Goes on from a number, and forgets what waits before it. */
  goTo(sequence: number): void {
    this.next = sequence;
    this.#partial = false;
    for (const waiting of [...this.#waiting.keys()]) if (waiting < sequence) this.#drop(waiting);
  }

  /** Gives up on what is missing: goes on from a number, or with the first waiting batch. */
  jump(to?: number): void {
    let first = to;
    if (to === undefined) for (const sequence of this.#waiting.keys()) if (first === undefined || sequence < first) first = sequence;
    if (first !== undefined) this.goTo(first);
    this.#partial = false;
  }

  /** Another publisher process speaks: nothing known of the former order holds. */
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
    this.#room.bytes += bytes;
  }
}
