// Heals a stream: asks for a replay at the start, at a gap and after a reconnect; without one, or in vain, the stream is lost.
import { setTimeout as delay } from "node:timers/promises";
import type { Freshness, Registration } from "@svc/contract/indexer.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Counts } from "./counts.ts";
import type { Batch } from "./frames.ts";
import type { Intake } from "./intake.ts";
import type { NativeIndex } from "./native.ts";
import type { Offered, Order } from "./order.ts";
import type { PublisherKind } from "./register-input.ts";
import { ReplayFailed, replay } from "./replay.ts";
import { Slots } from "./slots.ts";

/** Replays tried for one gap. */
const MAX_ATTEMPTS = 3;

/** Replays under way, over all publishers: each brings thousands of batches at once. */
const replays = new Slots(64);

/** `hole`: the publisher left some out in the middle, as one does that sends faster than it is read. */
type Ended = "whole" | "again" | "hole";

export type HealOptions = {
  readonly index: Pick<NativeIndex, "seen">;
  readonly intake: Pick<Intake, "enter" | "run">;
  readonly log: Log;
  readonly replayTimeoutMs: number;
  readonly reorderGraceMs: number;
};

/** A publisher's stream, as far as it is healed. */
export interface HealedStream {
  readonly id: number;
  readonly key: string;
  readonly kind: PublisherKind;
  readonly registration: Registration;
  readonly order: Order;
  readonly counts: Counts;
  readonly gap: boolean;
  readonly source: Freshness["source"];
  /** Until what waited and is due now is taken in. */
  readonly drained: Promise<void>;
  complete: boolean;
  problem: string;
  /** Masters that answer replays side by side, though of one store only the leader does. */
  rivals: readonly string[];
  offer(sequence: number, payload: Buffer, source: "event" | "replay"): Offered;
  restart(why: string, resumeAt?: number): void;
  lose(why: string, resumeAt?: number): void;
  drain(): void;
}

export class Healer {
  ended: Promise<void> = Promise.resolve();
  running = false;
  #wanted = false;
  #hadRivals = false;
  readonly #subscription: HealedStream;
  readonly #options: HealOptions;
  readonly #signal: AbortSignal;

  constructor(subscription: HealedStream, options: HealOptions, signal: AbortSignal) {
    this.#subscription = subscription;
    this.#options = options;
    this.#signal = signal;
  }

  /** Begins unless it is under way; events go on coming in meanwhile. */
  begin(): void {
    this.#wanted = true;
    if (this.running || this.#signal.aborted) return;
    this.running = true;
    this.ended = this.#run();
  }

  async #run(): Promise<void> {
    await this.#heal();
    // Right behind the last look at what is wanted: whatever is wanted later begins anew.
    this.running = false;
  }

  async #heal(): Promise<void> {
    while (this.#wanted && !this.#signal.aborted) {
      this.#wanted = false;
      const gap = this.#subscription.order.gap;
      if (gap) this.#subscription.counts.gaps++;
      try {
        await (this.#subscription.registration.replay_endpoint === "" ? this.#waitForLate() : this.#replay());
      } catch (error) {
        if (!this.#signal.aborted) this.#options.log.error({ subscription: this.#subscription.key, err: error }, "recovering a stream failed");
      }
      if (this.#signal.aborted) return;
      await this.#subscription.drained;
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
    await this.#change(() => {
      if (order.gap && order.next === before) this.#subscription.lose("batches are missing and there is no replay endpoint");
    });
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
        const ended = await replays.within(this.#signal, () => this.#once());
        await subscription.drained;
        if (ended === "whole" && !order.gap) {
          subscription.problem = "";
          return;
        }
        // A replay that brought the stream on was not in vain: what is missing now was lost since.
        if (ended !== "again" && (order.next ?? 0) > from) attempt = 0;
        if (ended === "hole") continue;
        trouble = ended === "whole" ? "the replay ended before the missing batches" : "the publisher was replaced meanwhile";
        // What the new one holds is asked for now, and not only once it says something.
        if (ended === "again") continue;
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
    await this.#change(() => {
      if (order.gap) this.#giveUp(trouble);
    });
  }

  /** Changes the index, when its turn comes. */
  #change(change: () => void): Promise<void> | undefined {
    return this.#options.intake.run(this.#subscription.key, () => {
      if (!this.#signal.aborted) change();
    });
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

  /** While the lead goes from one master to another both may answer once: only what a second replay finds as well is said. */
  #answered(by: readonly string[]): void {
    const areSeveral = by.length > 1;
    this.#subscription.rivals = areSeveral && this.#hadRivals ? by : [];
    if (areSeveral && !this.#hadRivals) this.begin();
    this.#hadRivals = areSeveral;
  }

  async #once(): Promise<Ended> {
    const { order, kind } = this.#subscription;
    if (kind !== "store") return this.#read();
    order.hold();
    let ended: Ended | undefined;
    try {
      ended = await this.#read();
      return ended;
    } finally {
      order.release(ended === "whole");
      this.#subscription.drain();
    }
  }

  async #read(): Promise<Ended> {
    const subscription = this.#subscription;
    const { order } = subscription;
    const next = order.next ?? 0;
    // One batch more than is missing: the last one we have proves that it is the same publisher.
    const seen = { proven: next === 0, answered: 0, restarts: subscription.counts.restarts };
    let ended: Ended | undefined;
    const asking = { timeoutMs: this.#options.replayTimeoutMs, signal: this.#signal, onAnswered: (by: readonly string[]) => this.#answered(by) };
    for await (const batch of replay(subscription.registration.replay_endpoint, Math.max(0, next - 1), asking)) {
      const later = this.#change(() => {
        ended = this.#replayed(batch, next, seen);
      });
      if (later !== undefined) await later;
      if (this.#signal.aborted) return "whole";
      if (ended !== undefined) return ended;
      await this.#options.intake.enter(subscription.key);
    }
    await this.#change(() => {
      if (seen.proven || seen.answered > 0 || order.next !== next) return;
      // It would have had the last batch we know; this one has sent fewer.
      subscription.restart("the publisher's replay does not reach what was taken in before");
      ended = "again";
    });
    return ended ?? "whole";
  }

  /** One batch of a replay that was asked for from `next` on; what it ends the replay with. */
  #replayed(batch: Batch, next: number, seen: { proven: boolean; answered: number; restarts: number }): Ended | undefined {
    const subscription = this.#subscription;
    const { order } = subscription;
    // Another publisher spoke meanwhile: this may be the former one's answer.
    if (subscription.counts.restarts !== seen.restarts) return "again";
    seen.answered++;
    // What came live since it was asked for is proof as well, and not to be taken in a second time.
    const known = subscription.kind === "store" ? next : Math.max(next, order.next ?? 0);
    if (!seen.proven && batch.sequence >= next - 1 && batch.sequence < known) {
      if (this.#options.index.seen(subscription.id, batch.sequence, batch.payload) !== 1) {
        subscription.restart(`a replay has another batch ${batch.sequence}`);
        return "again";
      }
      seen.proven = true;
      return undefined;
    }
    // What waits and is due is taken in before this one.
    const expected = order.next ?? 0;
    if (batch.sequence > expected && !order.due) {
      // Behind the batch that proved it comes no dump, either.
      if (seen.proven && (expected > next || (subscription.kind === "store" && seen.answered > 1))) return "hole";
      this.#beginsLater(batch.sequence);
    } else if (!seen.proven && batch.sequence >= next) this.#beginsLater(batch.sequence);
    if (subscription.kind === "store" && seen.answered === 1 && next === 0) order.beginDump();
    seen.proven = true;
    if (subscription.offer(batch.sequence, batch.payload, "replay") !== "other") return undefined;
    subscription.restart(`a replay has another batch ${batch.sequence}`);
    return "again";
  }

  /** The publisher's buffer no longer has what is missing: goes on from what it has. */
  #beginsLater(sequence: number): void {
    const subscription = this.#subscription;
    const nothingYet = subscription.source === "none";
    if (subscription.kind === "store") {
      subscription.restart("its replay is every key that it holds", sequence);
      subscription.order.beginDump();
      return;
    }
    if (!nothingYet) {
      subscription.lose(`the publisher's replay begins at ${sequence}, ${subscription.order.next} was wanted`, sequence);
      return;
    }
    subscription.complete = false;
    subscription.order.goTo(sequence);
  }
}
