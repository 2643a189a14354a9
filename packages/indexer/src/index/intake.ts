// All changes of the index pass through here: in slices of each tick of the event loop, one batch after the other, never while the index is
// read.
import { setTimeout as delay, setImmediate as tick } from "node:timers/promises";
import { Contention } from "./contention.ts";
import { LoopShare } from "./loop-share.ts";
import type { PendingBudget } from "./order.ts";
import type { WriteBarrier } from "./write-barrier.ts";

/** The slice of each tick, so that a query waits no longer than that; it grows to the time that queries take if they take more. */
const MIN_SLICE_MS = 0.25;
const MAX_SLICE_MS = 2;
/** The pause between slices while requests come and cores are scarce: a thread that uses all the time it can get is scheduled behind the others. */
const REST_MS = 1;
const RESTED_SLICE_MS = 0.5;
/** Requests count as coming for this long after the last one. */
const REQUESTED_MS = 500;

export class Intake {
  readonly writeBarrier: WriteBarrier;
  readonly pendingBudget: PendingBudget;
  readonly #share: LoopShare;
  readonly #requestsMs: () => number;
  readonly #contention: Pick<Contention, "found">;
  #requestedMs = Number.NEGATIVE_INFINITY;
  /** Resolves when a batch that is applied in slices is applied completely. */
  #unfinished: Promise<void> | undefined;

  /** `requestsMs` returns the time that requests took since its last call. */
  constructor(
    writeBarrier: WriteBarrier,
    pendingBudget: PendingBudget,
    requestsMs: () => number = () => 0,
    contention: Pick<Contention, "found"> = new Contention(),
  ) {
    this.writeBarrier = writeBarrier;
    this.pendingBudget = pendingBudget;
    this.#requestsMs = requestsMs;
    this.#contention = contention;
    this.#share = new LoopShare(
      () => this.#sliceMs(),
      () => this.#restMs(),
    );
    writeBarrier.before = () => this.#unfinished;
  }

  /** Waits until the peer may receive its next message, which takes as long as applying it; undefined if that may be now. */
  enter(peer: string): Promise<void> | undefined {
    return this.#share.enter(peer);
  }

  /** Runs `work` now (the result is undefined) or when the peer is due. */
  run(peer: string, work: () => void): Promise<void> | undefined {
    return this.#changeable ? this.#attempt(peer, work) : this.#later(peer, work);
  }

  /** Continues a batch that is larger than a slice with `step` until it returns false; everything else waits for it. */
  applySlices(step: () => boolean): void {
    this.#unfinished = this.#steps(step).finally(() => {
      this.#unfinished = undefined;
    });
    // The callers that wait for the batch continue even if it fails.
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
      await (restMs > 0 ? delay(restMs) : tick());
      const endsMs = performance.now() + this.#sliceMs();
      while (more && performance.now() < endsMs) more = step();
    }
  }
}
