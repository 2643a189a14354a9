// One publisher: its SUB socket, the order of its batches, the healing of gaps, and its updates of the index.
import type { Freshness, Registration } from "@svc/contract/indexer.ts";
import type { Generations } from "../index/generations.ts";
import { EVICTED, MALFORMED, MORE, outcomeIndex, outcomes, UNCERTAIN } from "../index/native.ts";
import { type Offered, Order } from "../index/order.ts";
import { nameOf, type PublisherKind } from "../registrations/register-input.ts";
import type { LiveSocket } from "../zmtp/listeners.ts";
import { Counts } from "./counts.ts";
import { readLive } from "./frames.ts";
import { Healer } from "./heal.ts";
import { LastTaken } from "./last-taken.ts";
import { LiveReceiver } from "./live.ts";
import { Quiet } from "./quiet.ts";
import type { SubscriptionOptions } from "./subscription-options.ts";
import { subscribeTo } from "./subscription-socket.ts";
import { Uncertain } from "./uncertain.ts";
import { Verification } from "./verification.ts";

export class Subscription {
  readonly generations: Generations;
  readonly registration: Registration;
  readonly kind: PublisherKind;
  readonly key: string;
  readonly counts: Counts;
  readonly order: Order;
  readonly verification = new Verification();
  readonly startedAtMs = Date.now();
  gap = false;
  complete = true;
  problem = "";
  rivals: readonly string[] = [];
  readonly #options: SubscriptionOptions;
  readonly #socket: LiveSocket;
  readonly #live: LiveReceiver;
  readonly #healer: Healer;
  readonly #ending = new AbortController();
  /** Resolves when all pending batches that are due are taken in. */
  drained: Promise<void> = Promise.resolve();
  #draining = false;
  readonly #batchCounts = new Uint32Array(outcomes.length);
  /** True if a removal in the current batch was lost. */
  #hasLost = false;
  readonly #time = new Float64Array(1);
  readonly last = new LastTaken();
  readonly #quiet = new Quiet();
  readonly #uncertain: Uncertain;

  constructor(options: SubscriptionOptions) {
    this.#options = options;
    this.generations = options.generations;
    this.registration = options.registration;
    this.kind = options.kind;
    this.key = nameOf(options.registration);
    this.counts = new Counts(options.kind);
    this.order = new Order(options.intake.pendingBudget);
    this.#uncertain = new Uncertain(this, options, this.#ending.signal);
    this.#healer = new Healer(this, options, this.#ending.signal);
    this.#socket = subscribeTo({
      ...options,
      key: this.key,
      counts: this.counts,
      onReady: () => {
        // The publisher may have been replaced while it was not connected; its replay decides. A store's current dump has everything.
        if (this.kind !== "store" || !this.#healer.running) this.#verify();
      },
      onReadable: () => this.#live.begin(),
    });
    this.#live = new LiveReceiver(this.#socket, {
      key: this.key,
      intake: options.intake,
      signal: this.#ending.signal,
      take: (frames, again) => this.#taken(frames, again),
      // The replay that is under way frees capacity; until then, input waits in the kernel and at the publisher.
      capacity: () => this.#healer.ended.then(() => this.drained),
      onFailed: (error) => {
        if (this.#ending.signal.aborted) return;
        this.problem = `taking in events failed: ${error.message}`;
        options.log.error({ subscription: this.key, err: error }, "taking in events failed");
      },
    });
    const { next = null, gap = false, complete = true, isPartial = false, needsAll = false, takenAtMs = null, lagMs = null } = options.remembered ?? {};
    this.verification.require({ ofAll: needsAll });
    if (next === null) return;
    this.order.resume(next, isPartial);
    this.gap = gap;
    this.complete = complete;
    this.last.resume(next, takenAtMs, lagMs);
  }

  get id(): number {
    return this.generations.id;
  }

  get connected(): boolean {
    return this.#socket.connected;
  }

  /** Connects (or binds) and begins to take events in. */
  async start(): Promise<void> {
    await this.#socket.open();
    this.#healer.begin();
    if (this.#options.quietCheckMs > 0 && this.registration.replay_endpoint !== "")
      this.#quiet.watch(
        this.#options.quietCheckMs,
        () => this.verification.missing,
        () => this.connected && this.#healer.begin(),
      );
  }

  async close(): Promise<void> {
    this.#ending.abort();
    this.#quiet.stop();
    this.#socket.close();
    await this.#live.ended;
    await this.#healer.ended;
    await this.drained;
    this.order.clear();
  }

  /** Offers a live or replayed batch, within the intake. Returns what became of it; `full`: nothing yet, since there is no capacity to keep it. */
  offer(sequence: number, payload: Buffer, source: "event" | "replay"): Offered {
    const verdict = this.order.decide(sequence, payload.length, source);
    if (verdict === "full") return verdict;
    switch (verdict) {
      case "apply":
        this.#apply(sequence, payload, source);
        this.drain();
        return "applied";
      case "wait":
        if (!this.order.wait(sequence, payload) && this.kind !== "store") return this.#renewed(sequence, payload, source);
        if (!this.order.isPaused) this.#healer.begin();
        return "waits";
      default:
        return this.#behind(sequence, payload, source, verdict === "late");
    }
  }

  /** A lower number is the same batch again or a new process's first one; a store's dump has other batches under numbers that come late. */
  #behind(sequence: number, payload: Buffer, source: "event" | "replay", isLate: boolean): Offered {
    const known = this.#options.index.seen(this.id, sequence, payload);
    if (source === "replay") return this.kind === "store" || known === 1 ? "duplicate" : known === 2 ? "other" : "unknown";
    if (known !== 1 && !(isLate && (known === 0 || this.kind === "store"))) return this.#renewed(sequence, payload, source);
    // If its fingerprint is forgotten, or its number is not above the last live one's, the batch may come from another process.
    if (this.kind !== "store" && (known === 0 || !isLate)) this.#verify();
    this.counts.duplicateBatches++;
    return "duplicate";
  }

  /** Only a replay can decide whether another publisher is there. */
  #verify(): void {
    this.verification.require();
    this.#healer.begin();
  }

  /** The batch may be the former process's last one, read only now: the replay shows which process is there. */
  #renewed(sequence: number, payload: Buffer, source: "event" | "replay"): Offered {
    this.restart(`batch ${sequence} came where ${this.order.next} was expected`);
    this.#healer.begin();
    return this.offer(sequence, payload, source);
  }

  /** Another process publishes here now: all blocks of the former one are gone. */
  restart(why: string): void {
    this.#options.log.info({ subscription: this.key, why }, "the publisher started again; its blocks are cleared");
    this.generations.clear();
    this.counts.restarted();
    this.#startOver();
  }

  /** A store sends everything that it holds, from here on or on request; until it has, its former blocks stay in answers. */
  reread(why: string, resumeAt?: number): void {
    this.#options.log.info({ subscription: this.key, why }, "the store is read again; its former blocks are answered until that is done");
    this.generations.reread();
    this.#startOver(resumeAt);
  }

  #startOver(resumeAt?: number): void {
    this.gap = false;
    this.complete = true;
    if (resumeAt === undefined) {
      if (this.registration.replay_endpoint !== "") this.verification.require({ ofAll: this.kind !== "store" });
      this.order.restart();
    } else this.order.goTo(resumeAt);
  }

  /** The missing batches cannot be had: the blocks that they may have affected become uncertain. */
  lose(why: string, resumeAt?: number): void {
    this.#drop(why);
    this.counts.lostGaps++;
    this.order.jump(resumeAt);
    this.#verify();
    this.drain();
  }

  #drop(why: string): void {
    this.#options.log.warn({ subscription: this.key, why, next: this.order.next }, "events are lost; the blocks that they may have affected are uncertain");
    this.generations.settle();
    this.#options.index.lose(this.id);
    this.#options.reclaimer.begin();
    this.#uncertain.begin();
    this.gap = true;
    this.complete = false;
  }

  /** Takes in pending batches that are due, in slices of the intake. */
  drain(): void {
    if (this.#draining || !this.order.due) return;
    this.#draining = true;
    this.drained = this.#drain();
  }

  async #drain(): Promise<void> {
    try {
      while (this.order.due && !this.#ending.signal.aborted) {
        const later = this.#options.intake.run(this.key, () => {
          const payload = this.order.takeDue();
          if (payload !== undefined) this.#apply(this.order.next as number, payload, "event");
        });
        if (later !== undefined) await later;
      }
    } catch (error) {
      this.#options.log.error({ subscription: this.key, err: error }, "applying the waiting batches failed");
    } finally {
      this.#draining = false;
    }
  }

  freshness(nowMs: number = Date.now()): Freshness {
    const heard = this.heard(nowMs);
    const lacks = this.#options.index.lacks(this.id);
    return { ...heard, complete: heard.complete && (lacks & EVICTED) === 0, uncertain: (lacks & UNCERTAIN) !== 0 };
  }

  /** Returns the freshness without what the core knows, which the core adds where it writes answers. */
  heard(nowMs: number): Omit<Freshness, "uncertain"> {
    // A publisher that is not connected is not heard, so its row is not complete.
    const complete = this.complete && this.connected && !this.order.gap && !this.verification.missing;
    return { ...this.last.freshness(nowMs), gap: this.gap || this.order.gap, complete, connected: this.connected, state: this.counts.stateOf(this.connected) };
  }

  #apply(sequence: number, payload: Buffer, source: "event" | "replay"): void {
    // The first batch that we see need not be the publisher's first.
    if (this.order.next === undefined && sequence > 0) this.complete = false;
    const isFirst = this.last.source === "none" && sequence === 0;
    if (source === "event" && (isFirst || this.registration.replay_endpoint === "")) this.verification.confirm();
    const { index } = this.#options;
    const taken = index.apply(this.id, sequence, payload, this.#batchCounts, this.#time);
    this.order.applied(sequence);
    this.counts.batches++;
    if (source === "replay") this.counts.replayedBatches++;
    this.last.note(sequence, source);
    // A dump brings nothing new, so a publisher that only sends one still counts as quiet.
    if (!this.order.partial) this.#quiet.spoke();
    if (taken === MALFORMED) {
      this.counts.malformedFrames++;
      this.#drop(`batch ${sequence} is malformed`);
      return;
    }
    this.#count(taken === MORE);
    if (taken === MORE)
      this.#options.intake.applySlices(() => {
        const more = index.applyMore(this.id, this.#batchCounts) === MORE;
        this.#count(more);
        return more;
      });
    this.last.sent(this.#time[0] as number);
  }

  /** Counts the outcomes of a part of a batch; `more`: another part follows. */
  #count(more: boolean): void {
    const isIndexed = this.counts.add(this.#batchCounts);
    if (this.#batchCounts[outcomeIndex.cleared] !== 0) this.#options.reclaimer.begin();
    if (this.#batchCounts[outcomeIndex.cleared_all] !== 0) {
      // A publisher that has just cleared everything is known completely.
      this.gap = false;
      this.complete = true;
    }
    if (!isIndexed) this.complete = false;
    if (this.#batchCounts[outcomeIndex.lost_removal] !== 0) this.#hasLost = true;
    if (more || !this.#hasLost) return;
    this.#hasLost = false;
    this.#drop("a removal could not be read, or carried out");
  }

  /** Takes a live message in; returns true if there is no capacity for it and it should be offered once more. */
  #taken(frames: readonly Buffer[], again: boolean): boolean {
    const batch = readLive(frames);
    if (batch === undefined) {
      this.counts.malformedFrames++;
      return false;
    }
    if (this.offer(batch.sequence, batch.payload, "event") !== "full") return false;
    if (this.#healer.running && !again) return true;
    // The pending batches are of no use without the missing ones before them.
    this.lose(`more than can wait overtook batch ${this.order.next}`, batch.sequence);
    this.offer(batch.sequence, batch.payload, "event");
    return false;
  }
}
