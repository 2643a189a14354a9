// What changes the index comes through here: in slices of the event loop's turns, one batch after the other, never while the index is read.
import { setTimeout as delay, setImmediate as turn } from "node:timers/promises";
import { Contention } from "./contention.ts";
import { LoopShare } from "./loop-share.ts";
import type { PendingBudget } from "./order.ts";
import type { WriteBarrier } from "./write-barrier.ts";

/** Of each turn of the event loop, so that a query waits no longer than that; as long as queries take where they take more. */
const MIN_SLICE_MS = 0.25;
const MAX_SLICE_MS = 2;
/** While requests come and others want the cores, too: a thread that takes all it can get waits for each further turn behind them. */
const REST_MS = 1;
const RESTED_SLICE_MS = 0.5;
/** Requests come as long as the last one was so short a time ago. */
const REQUESTED_MS = 500;

export class Intake {
  readonly writeBarrier: WriteBarrier;
  readonly room: PendingBudget;
  readonly #share: LoopShare;
  readonly #requestsMs: () => number;
  readonly #contention: Pick<Contention, "found">;
  #requestedMs = Number.NEGATIVE_INFINITY;
  /** Until a batch that is applied in slices is there wholly. */
  #unfinished: Promise<void> | undefined;

  /** `requestsMs`: what requests took since it was last asked. */
  constructor(writeBarrier: WriteBarrier, room: PendingBudget, requestsMs: () => number = () => 0, contention: Pick<Contention, "found"> = new Contention()) {
    this.writeBarrier = writeBarrier;
    this.room = room;
    this.#requestsMs = requestsMs;
    this.#contention = contention;
    this.#share = new LoopShare(
      () => this.#sliceMs(),
      () => this.#restMs(),
    );
    writeBarrier.before = () => this.#unfinished;
  }

  /** Before a peer's next message is received, which takes as long as applying it: undefined when that may be now. */
  enter(peer: string): Promise<void> | undefined {
    return this.#share.enter(peer);
  }

  /** Runs `work` now, or when its turn comes; undefined when it ran at once. */
  run(peer: string, work: () => void): Promise<void> | undefined {
    return this.#changeable ? this.#attempt(peer, work) : this.#later(peer, work);
  }

  /** `step` goes on with a batch that is larger than a slice, until it says false; everything else waits for it. */
  goOn(step: () => boolean): void {
    this.#unfinished = this.#steps(step).finally(() => {
      this.#unfinished = undefined;
    });
    // Whoever waits for it goes on either way.
    this.#unfinished.catch(() => {});
  }

  #sliceMs(): number {
    const requestsMs = this.#requestsMs();
    if (requestsMs > 0) this.#requestedMs = performance.now();
    return Math.min(MAX_SLICE_MS, Math.max(this.#restMs() > 0 ? RESTED_SLICE_MS : MIN_SLICE_MS, requestsMs));
  }

  #restMs(): number {
    return performance.now() - this.#requestedMs < REQUESTED_MS && this.#contention.found ? REST_MS : 0;
  }

  get #changeable(): boolean {
    return this.#unfinished === undefined && this.writeBarrier.over === undefined;
  }

  #attempt(peer: string, work: () => void): Promise<void> | undefined {
    const ran = this.#share.run(peer, () => {
      if (!this.#changeable) return false;
      work();
      return true;
    });
    if (ran === true) return undefined;
    return this.#orLater(peer, work, ran);
  }

  async #orLater(peer: string, work: () => void, ran: boolean | Promise<boolean>): Promise<void> {
    if (!(await ran)) await this.#later(peer, work);
  }

  async #later(peer: string, work: () => void): Promise<void> {
    if (this.#unfinished !== undefined) await this.#unfinished.catch(() => {});
    await this.writeBarrier.wait();
    await this.run(peer, work);
  }

  async #steps(step: () => boolean): Promise<void> {
    for (let more = true; more; ) {
      const restMs = this.#restMs();
      await (restMs > 0 ? delay(restMs) : turn());
      const endsMs = performance.now() + this.#sliceMs();
      while (more && performance.now() < endsMs) more = step();
    }
  }
}
