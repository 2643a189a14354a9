// Heals a stream: requests a replay at the start, at a gap and after a reconnect. Without a replay, or if it does not help, the missing
// events are lost.
import { setTimeout as delay } from "node:timers/promises";
import type { Freshness, Registration } from "@svc/contract/indexer.ts";
import type { Log } from "@svc/kit/log.ts";
import { Semaphore } from "@svc/kit/semaphore.ts";
import type { Intake } from "../index/intake.ts";
import type { NativeIndex } from "../index/native.ts";
import type { Offered, Order } from "../index/order.ts";
import type { PublisherKind } from "../registrations/register-input.ts";
import type { Counts } from "./counts.ts";
import type { Batch } from "./frames.ts";
import { ReplayFailed, replay } from "./replay.ts";
import type { Verification } from "./verification.ts";

/** The number of replays tried for one gap. */
const MAX_ATTEMPTS = 3;

/** Limits the replays under way over all publishers: each brings thousands of batches at once. */
const replays = new Semaphore(64);

/** `hole`: the publisher left out batches in the middle, as one does that sends faster than we read. */
type Ended = "whole" | "again" | "hole";

export type HealOptions = {
  readonly index: Pick<NativeIndex, "seen">;
  readonly intake: Pick<Intake, "enter" | "run">;
  readonly log: Log;
  readonly replayTimeoutMs: number;
  readonly reorderGraceMs: number;
};

/** The progress of a replay: how many batches came, and whether one proved that this publisher sent what we have. */
type Reading = { readonly next: number; readonly from: number; readonly ofAll: boolean; readonly restarts: number; proven: boolean; answered: number };

/** A publisher's stream, as far as the healer needs it. */
export interface HealedStream {
  readonly id: number;
  readonly key: string;
  readonly kind: PublisherKind;
  readonly registration: Registration;
  readonly order: Order;
  readonly verification: Verification;
  readonly counts: Counts;
  readonly gap: boolean;
  readonly last: { readonly source: Freshness["source"] };
  /** Resolves when all pending batches that are due are taken in. */
  readonly drained: Promise<void>;
  readonly generations: { settle(): void };
  complete: boolean;
  problem: string;
  /** Masters that answer replays at the same time, although only the leader of a store should; the one whose replay we took in comes first. */
  rivals: readonly string[];
  offer(sequence: number, payload: Buffer, source: "event" | "replay"): Offered;
  restart(why: string): void;
  reread(why: string, resumeAt?: number): void;
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

  /** Begins to heal unless that is under way; live events continue to come in meanwhile. */
  begin(): void {
    this.#wanted = true;
    if (this.running || this.#signal.aborted) return;
    this.running = true;
    this.ended = this.#run();
  }

  async #run(): Promise<void> {
    await this.#heal();
    // This line must directly follow the last look at `#wanted`: a later request then starts a new run.
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

  /** Without a replay, only a batch that was overtaken can still close the gap. */
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
    const { order, verification } = subscription;
    let trouble = "";
    // Live batches wait until the replay has sent the batches before them.
    const first = order.next === undefined;
    for (let attempt = 1; attempt <= MAX_ATTEMPTS && !this.#signal.aborted; attempt++) {
      order.next ??= 0;
      const from = order.next;
      try {
        const ended = await replays.within(this.#signal, () => this.#once());
        await subscription.drained;
        if (ended === "whole") subscription.problem = "";
        if (ended === "whole" && !order.gap && !verification.missing) return;
        // A replay that advanced the stream succeeded: what is missing now was lost since then, so the attempts are counted again.
        if (ended !== "again" && (order.gap || ended === "hole") && (order.next ?? 0) > from) attempt = 0;
        if (ended === "hole") {
          verification.require();
          continue;
        }
        trouble = ended === "whole" ? "the replay ended before the missing batches" : "the publisher was replaced meanwhile";
        // The new publisher's blocks are requested now, not only once it publishes.
        if (ended === "again") continue;
      } catch (error) {
        if (!(error instanceof ReplayFailed)) throw error;
        if (this.#signal.aborted) return;
        trouble = error.message;
        subscription.problem = trouble;
        // We have never taken a batch in, so whatever comes first is the beginning.
        if (first && order.next === 0) {
          if (order.gap) break;
          order.next = undefined;
          return;
        }
      }
      if (!order.gap && !verification.missing) return;
    }
    await this.#change(() => {
      if (order.gap) this.#giveUp(trouble);
    });
  }

  /** Changes the index when the intake admits this stream. */
  #change(change: () => void): Promise<void> | undefined {
    return this.#options.intake.run(this.#subscription.key, () => {
      if (!this.#signal.aborted) change();
    });
  }

  #giveUp(why: string): void {
    const subscription = this.#subscription;
    if (subscription.order.next === 0) {
      // We had nothing, so there is nothing to drop: what comes is correct but not complete.
      subscription.generations.settle();
      subscription.complete = false;
      subscription.order.jump();
      subscription.drain();
      return;
    }
    subscription.lose(why);
  }

  /** While the lead moves from one master to another, both may answer once. Rivals are reported only if a second replay finds them as well. */
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
    const { order, verification } = subscription;
    const { mark, isOfAll: ofAll } = verification;
    const from = order.next ?? 0;
    // We request one batch more than is missing: the last one that we have proves that the publisher is the same.
    const next = ofAll ? 0 : from;
    const reading: Reading = { next, from, ofAll, restarts: subscription.counts.restarts, proven: next === 0, answered: 0 };
    let ended: Ended | undefined;
    const asking = { timeoutMs: this.#options.replayTimeoutMs, signal: this.#signal, onAnswered: (by: readonly string[]) => this.#answered(by) };
    for await (const batch of replay(subscription.registration.replay_endpoint, Math.max(0, next - 1), asking)) {
      const later = this.#change(() => {
        ended = this.#replayed(batch, reading);
      });
      if (later !== undefined) await later;
      if (this.#signal.aborted) return "whole";
      if (ended !== undefined) return ended;
      await this.#options.intake.enter(subscription.key);
    }
    await this.#change(() => {
      ended = this.#outcome(reading, mark);
    });
    return ended ?? "whole";
  }

  /** Decides what a replay proved that came to its end. */
  #outcome({ from, restarts, proven, answered }: Reading, mark: number): Ended {
    const subscription = this.#subscription;
    const { order, verification } = subscription;
    if (subscription.counts.restarts !== restarts) return "again";
    const isStill = answered === 0 && order.next === from;
    if (proven && (answered > 0 || (isStill && from === 0))) {
      verification.confirm(mark);
      subscription.generations.settle();
    } else if (!isStill) verification.require();
    else {
      // The same publisher would have sent the last batch that we have; this one has sent fewer.
      subscription.restart("the publisher's replay does not reach what was taken in before");
      return "again";
    }
    return "whole";
  }

  /** Takes one batch of a replay in; a result ends the replay. */
  #replayed(batch: Batch, reading: Reading): Ended | undefined {
    const subscription = this.#subscription;
    const { order } = subscription;
    const { next } = reading;
    // Another publisher has published meanwhile, so this may be the former one's answer.
    if (subscription.counts.restarts !== reading.restarts) return "again";
    reading.answered++;
    // If everything must be verified and the publisher no longer has the beginning, its stream counts as another one and is read again.
    if (reading.ofAll && reading.answered === 1 && batch.sequence > 0 && reading.from > 0) return this.#isOther(batch);
    // A batch that came live since the request verifies the publisher as well, and must not be taken in twice.
    const known = subscription.kind === "store" ? next : Math.max(next, order.next ?? 0);
    if (!reading.proven && batch.sequence >= next - 1 && batch.sequence < known) {
      const seen = this.#options.index.seen(subscription.id, batch.sequence, batch.payload);
      // The fingerprint of this batch is forgotten, since many live batches came after it; a later one decides.
      if (seen === 0 && batch.sequence < known - 1) return undefined;
      if (seen !== 1) return this.#isOther(batch);
      reading.proven = true;
      return undefined;
    }
    // Pending batches that are due are taken in before this one.
    const expected = order.next ?? 0;
    if (batch.sequence > expected && !order.due) {
      // A dump never comes after the batch that verified the publisher, either.
      if (reading.answered > 1 && (expected > reading.from || subscription.kind === "store")) return "hole";
      this.#beginsLater(batch.sequence);
    } else if (!reading.proven && batch.sequence >= next) this.#beginsLater(batch.sequence);
    if (subscription.kind === "store" && reading.answered === 1 && next === 0) order.beginDump();
    reading.proven = true;
    const became = subscription.offer(batch.sequence, batch.payload, "replay");
    return became === "other" || (became === "unknown" && reading.ofAll) ? this.#isOther(batch) : undefined;
  }

  #isOther({ sequence }: Batch): Ended {
    // A dump has other batches under the same numbers, so a store that continues looks like another one.
    this.#subscription[this.#subscription.kind === "store" ? "reread" : "restart"](`a replay has another batch ${sequence}`);
    return "again";
  }

  /** The publisher's buffer no longer has what is missing: continue with the first batch that it has. */
  #beginsLater(sequence: number): void {
    const subscription = this.#subscription;
    const nothingYet = subscription.last.source === "none";
    if (subscription.kind === "store") {
      subscription.reread("its replay is every key that it holds", sequence);
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
