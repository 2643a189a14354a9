// Order within one publisher's stream: the batch sequence decides, never a timestamp. Pure; subscription.ts does the effects.
//
//   unknown ──first batch──▶ following ──gap──▶ waiting ──missing batches came──▶ following
//                               ▲  └─lower number, another batch: restart─┐        │
//                               └──────────────── from 0 ◀───────────────┘   given up: jump

/** Batches that overtook missing ones, at most. */
export const MAX_WAITING = 20_000;
export const MAX_WAITING_BYTES = 256 * 1024 * 1024;

export type Verdict = "apply" | "wait" | "behind" | "full";

export class Order {
  /** The number that follows the last one taken in; undefined before the first. */
  next: number | undefined;
  readonly #waiting = new Map<number, Buffer>();
  #bytes = 0;

  /** What is to be done with a batch of this number. */
  judge(sequence: number): Verdict {
    if (this.next === undefined || sequence === this.next) return "apply";
    if (sequence < this.next) return "behind";
    return this.#waiting.size >= MAX_WAITING || this.#bytes >= MAX_WAITING_BYTES ? "full" : "wait";
  }

  wait(sequence: number, payload: Buffer): void {
    if (this.#waiting.has(sequence)) return;
    this.#waiting.set(sequence, payload);
    this.#bytes += payload.length;
  }

  applied(sequence: number): void {
    this.next = sequence + 1;
  }

  /** The waiting batch whose turn it is. */
  takeDue(): Buffer | undefined {
    if (this.next === undefined) return undefined;
    const payload = this.#waiting.get(this.next);
    if (payload === undefined) return undefined;
    this.#drop(this.next, payload);
    return payload;
  }

  get gap(): boolean {
    return this.#waiting.size > 0;
  }

  /** Gives up on what is missing: goes on with the first waiting batch. */
  jump(): void {
    let first: number | undefined;
    for (const sequence of this.#waiting.keys()) if (first === undefined || sequence < first) first = sequence;
    if (first !== undefined) this.next = first;
  }

  /** Another publisher process speaks: nothing known of the former order holds. */
  restart(): void {
    this.next = 0;
    this.#waiting.clear();
    this.#bytes = 0;
  }

  /** Forgets waiting batches that were taken in by another way. */
  forgetBehind(): void {
    for (const [sequence, payload] of this.#waiting) if (this.next !== undefined && sequence < this.next) this.#drop(sequence, payload);
  }

  #drop(sequence: number, payload: Buffer): void {
    this.#waiting.delete(sequence);
    this.#bytes -= payload.length;
  }
}
