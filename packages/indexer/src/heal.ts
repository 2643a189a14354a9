// Heals a stream: asks for a replay at the start, at a gap and after a reconnect; without one, or in vain, the stream is lost.
import { setTimeout as delay } from "node:timers/promises";
import { ReplayFailed, replay } from "./replay.ts";
import type { Subscription, SubscriptionOptions } from "./subscription.ts";

/** Replays tried for one gap. */
const MAX_ATTEMPTS = 3;

type Ended = "whole" | "again";

export class Healer {
  ended: Promise<void> = Promise.resolve();
  #running = false;
  #wanted = false;
  readonly #subscription: Subscription;
  readonly #options: SubscriptionOptions;
  readonly #signal: AbortSignal;

  constructor(subscription: Subscription, options: SubscriptionOptions, signal: AbortSignal) {
    this.#subscription = subscription;
    this.#options = options;
    this.#signal = signal;
  }

  /** Begins unless it is under way; events go on coming in meanwhile. */
  begin(): void {
    this.#wanted = true;
    if (this.#running || this.#signal.aborted) return;
    this.#running = true;
    this.ended = this.#run().finally(() => {
      this.#running = false;
    });
  }

  async #run(): Promise<void> {
    while (this.#wanted && !this.#signal.aborted) {
      this.#wanted = false;
      const gap = this.#subscription.order.gap;
      if (gap) this.#subscription.counts.gaps++;
      try {
        await (this.#subscription.registration.replay_endpoint === "" ? this.#waitForLate() : this.#replay());
      } catch (error) {
        if (!this.#signal.aborted) this.#options.log.error({ subscription: this.#subscription.key, err: error }, "healing a stream failed");
      }
      if (this.#signal.aborted) return;
      if (gap && !this.#subscription.order.gap && !this.#subscription.gap) this.#subscription.counts.healedGaps++;
      if (this.#subscription.order.gap) this.#wanted = true;
    }
  }

  /** Without a replay only a batch that was overtaken can still come. */
  async #waitForLate(): Promise<void> {
    const { order } = this.#subscription;
    if (!order.gap) return;
    const before = order.next;
    await delay(this.#options.reorderGraceMs, undefined, { signal: this.#signal }).catch(() => {});
    await this.#options.stillness.wait();
    if (order.gap && order.next === before) this.#subscription.lose("batches are missing and there is no replay endpoint");
  }

  async #replay(): Promise<void> {
    const subscription = this.#subscription;
    const { order } = subscription;
    let trouble = "";
    // Live batches wait until the replay says what was before them.
    const first = order.next === undefined;
    for (let attempt = 1; attempt <= MAX_ATTEMPTS && !this.#signal.aborted; attempt++) {
      order.next ??= 0;
      const from = order.next;
      try {
        const ended = await this.#once();
        if (ended === "whole" && !order.gap) {
          subscription.problem = "";
          return;
        }
        // A replay that brought the stream on was not in vain: what is missing now was lost since.
        if (ended === "whole" && (order.next ?? 0) > from) attempt = 0;
        trouble = ended === "whole" ? "the replay ended before the missing batches" : "the publisher was replaced meanwhile";
      } catch (error) {
        if (!(error instanceof ReplayFailed)) throw error;
        if (this.#signal.aborted) return;
        trouble = error.message;
        subscription.problem = trouble;
        // Nothing was ever taken in: whatever comes first is the beginning.
        if (first && order.next === 0) {
          if (order.gap) break;
          order.next = undefined;
          return;
        }
      }
      if (!order.gap) return;
    }
    await this.#options.stillness.wait();
    if (!this.#signal.aborted && order.gap) this.#giveUp(trouble);
  }

  #giveUp(why: string): void {
    const subscription = this.#subscription;
    if (subscription.order.next === 0) {
      // Nothing is dropped that was never had; the stream is true, but not all of it.
      subscription.complete = false;
      subscription.order.jump();
      subscription.drain();
      return;
    }
    subscription.lose(why);
  }

  async #once(): Promise<Ended> {
    const subscription = this.#subscription;
    const { order } = subscription;
    const next = order.next ?? 0;
    // One batch more than is missing: the last one we have proves that it is the same publisher.
    let proven = next === 0;
    let answered = 0;
    for await (const batch of replay(subscription.registration.replay_endpoint, Math.max(0, next - 1), this.#options.replayTimeoutMs, this.#signal)) {
      answered++;
      if (this.#options.stillness.over !== undefined) await this.#options.stillness.wait();
      if (this.#signal.aborted) return "whole";
      if (!proven && batch.sequence === next - 1) {
        if (this.#options.index.seen(subscription.id, batch.sequence, batch.payload) !== 1) {
          subscription.restart(`a replay has another batch ${batch.sequence}`);
          return "again";
        }
        proven = true;
        continue;
      }
      if (batch.sequence > (order.next ?? 0) || (!proven && batch.sequence >= next)) {
        this.#beginsLater(batch.sequence);
        proven = true;
      }
      subscription.offer(batch.sequence, batch.payload, "replay");
    }
    await this.#options.stillness.wait();
    if (!proven && answered === 0 && order.next === next) {
      // It would have had the last batch we know; this one has sent fewer.
      subscription.restart("the publisher's replay does not reach what was taken in before");
      return "again";
    }
    return "whole";
  }

  /** The publisher's buffer no longer has what is missing: goes on from what it has. */
  #beginsLater(sequence: number): void {
    const subscription = this.#subscription;
    const nothingYet = subscription.source === "none";
    if (!nothingYet) {
      subscription.lose(`the publisher's replay begins at ${sequence}, ${subscription.order.next} was wanted`, sequence);
      return;
    }
    subscription.complete = false;
    subscription.order.next = sequence;
  }
}
