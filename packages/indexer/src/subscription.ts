// One publisher: its SUB socket, its order, the healing of gaps, and what the index is told.
import { setImmediate as turn } from "node:timers/promises";
import type { Freshness, Registration } from "@svc/contract/indexer.ts";
import type { Log } from "@svc/kit/log.ts";
import { Subscriber } from "zeromq";
import { Counts } from "./counts.ts";
import { readLive } from "./frames.ts";
import { Healer } from "./heal.ts";
import { type NativeIndex, outcomeIndex, outcomes } from "./native.ts";
import { Order } from "./order.ts";
import type { Reclaimer } from "./reclaim.ts";
import { keyOf, type PublisherKind, readEndpoint } from "./register-input.ts";
import type { Stillness } from "./stillness.ts";

const MAX_MESSAGE_BYTES = 256 * 1024 * 1024;
const HIGH_WATER_MARK = 100_000;

/** What a snapshot remembers of a subscription beside its blocks. */
export type Remembered = { next: number | null; gap: boolean; complete: boolean };

export type SubscriptionOptions = {
  readonly index: NativeIndex;
  readonly reclaimer: Reclaimer;
  readonly stillness: Stillness;
  readonly id: number;
  readonly registration: Registration;
  readonly kind: PublisherKind;
  readonly log: Log;
  readonly replayTimeoutMs: number;
  readonly reorderGraceMs: number;
  readonly quietCheckMs: number;
  readonly remembered?: Remembered | undefined;
};

export class Subscription {
  readonly id: number;
  readonly registration: Registration;
  readonly kind: PublisherKind;
  readonly key: string;
  readonly counts = new Counts();
  readonly order = new Order();
  readonly startedAtMs = Date.now();
  gap = false;
  complete = true;
  connected = false;
  problem = "";
  source: Freshness["source"] = "none";
  /** When recent restarts were seen: two publishers on one endpoint look like endless restarts. */
  readonly restartsAtMs: number[] = [];
  readonly #options: SubscriptionOptions;
  readonly #socket = new Subscriber({ linger: 0, receiveHighWaterMark: HIGH_WATER_MARK, maxMessageSize: MAX_MESSAGE_BYTES });
  readonly #healer: Healer;
  readonly #ending = new AbortController();
  readonly #batchCounts = new Uint32Array(outcomes.length);
  readonly #time = new Float64Array(1);
  #lastSequence: number | null = null;
  #lagMs: number | null = null;
  #receivedAtMs: number | null = null;
  #running: Promise<void> = Promise.resolve();
  #wasConnected = false;
  #quietTimer: NodeJS.Timeout | undefined;
  #quietMs = 0;
  #spokeAtMs = performance.now();

  constructor(options: SubscriptionOptions) {
    this.#options = options;
    this.id = options.id;
    this.registration = options.registration;
    this.kind = options.kind;
    this.key = keyOf(options.registration);
    this.#healer = new Healer(this, options, this.#ending.signal);
    if (options.remembered === undefined) return;
    const { next, gap, complete } = options.remembered;
    if (next === null) return;
    this.order.next = next;
    this.#lastSequence = next - 1;
    this.gap = gap;
    this.complete = complete;
    this.source = "snapshot";
  }

  /** Connects (or binds) and begins to take events in. */
  async start(): Promise<void> {
    const { address, binds } = readEndpoint(this.registration.endpoint, "endpoint");
    this.#socket.subscribe("");
    this.#socket.events.on("handshake", () => this.#onConnect());
    this.#socket.events.on("disconnect", () => {
      this.connected = false;
      this.counts.disconnects++;
    });
    if (binds) await this.#socket.bind(address);
    else this.#socket.connect(address);
    this.#running = this.#receive();
    this.#healer.begin();
    this.#watchQuiet();
  }

  async close(): Promise<void> {
    this.#ending.abort();
    clearInterval(this.#quietTimer);
    this.#socket.close();
    await this.#running;
    await this.#healer.ended;
  }

  /** A batch by either way. Returns what became of it. */
  offer(sequence: number, payload: Buffer, source: "event" | "replay"): "applied" | "waits" | "duplicate" | "restarted" {
    switch (this.order.judge(sequence)) {
      case "apply":
        this.#apply(sequence, payload, source);
        this.drain();
        return "applied";
      case "wait":
        this.order.wait(sequence, payload);
        this.#healer.begin();
        return "waits";
      case "full":
        this.lose(`more than can wait overtook batch ${this.order.next}`);
        this.order.wait(sequence, payload);
        return "waits";
      case "behind":
        return this.#behind(sequence, payload, source);
    }
  }

  #behind(sequence: number, payload: Buffer, source: "event" | "replay"): "duplicate" | "restarted" {
    // A lower number is the same batch again, or the first words of a new publisher process.
    if (source === "replay") return "duplicate";
    if (this.#options.index.seen(this.id, sequence, payload) === 1) {
      this.counts.duplicateBatches++;
      return "duplicate";
    }
    this.restart(`batch ${sequence} came where ${this.order.next} was expected`);
    this.offer(sequence, payload, source);
    return "restarted";
  }

  /** Another process publishes here now: whatever the former one held is gone. */
  restart(why: string): void {
    this.#options.log.info({ subscription: this.key, why }, "the publisher began anew; its blocks are cleared");
    this.#options.index.clear(this.id, true);
    this.#options.reclaimer.begin();
    this.order.restart();
    this.counts.restarts++;
    this.restartsAtMs.push(Date.now());
    if (this.restartsAtMs.length > 10) this.restartsAtMs.shift();
    this.gap = false;
    this.complete = true;
  }

  /** What is missing cannot be had: nothing this publisher gave can be trusted any more. */
  lose(why: string, resumeAt?: number): void {
    this.#options.log.warn({ subscription: this.key, why, next: this.order.next }, "events are lost; the stream's blocks are dropped");
    this.#options.index.clear(this.id, false);
    this.#options.reclaimer.begin();
    this.counts.lostGaps++;
    this.gap = true;
    this.complete = false;
    if (resumeAt === undefined) this.order.jump();
    else this.order.next = resumeAt;
    this.drain();
  }

  drain(): void {
    this.order.forgetBehind();
    for (let payload = this.order.takeDue(); payload !== undefined; payload = this.order.takeDue()) this.#apply(this.order.next ?? 0, payload, "event");
  }

  freshness(nowMs: number = Date.now()): Freshness {
    return {
      last_sequence: this.#lastSequence,
      lag_ms: this.#lagMs,
      age_ms: this.#receivedAtMs === null ? null : Math.max(0, nowMs - this.#receivedAtMs),
      gap: this.gap || this.order.gap,
      complete: this.complete && !this.order.gap,
      source: this.source,
      connected: this.connected,
    };
  }

  remember(): Remembered {
    return { next: this.order.next ?? null, gap: this.gap, complete: this.complete };
  }

  #apply(sequence: number, payload: Buffer, source: "event" | "replay"): void {
    // The first batch we ever see need not be the publisher's first.
    if (this.order.next === undefined && sequence > 0) this.complete = false;
    const sound = this.#options.index.apply(this.id, sequence, payload, this.#batchCounts, this.#time) === 1;
    this.order.applied(sequence);
    this.counts.batches++;
    if (source === "replay") this.counts.replayedBatches++;
    this.#lastSequence = sequence;
    this.source = source;
    this.#spokeAtMs = performance.now();
    this.#quietMs = this.#options.quietCheckMs;
    this.#receivedAtMs = Date.now();
    if (!sound) {
      this.counts.malformedFrames++;
      return;
    }
    this.counts.add(this.#batchCounts);
    const sentAtMs = this.#time[0] as number;
    this.#lagMs = sentAtMs > 0 ? Math.max(0, Math.round(this.#receivedAtMs - sentAtMs)) : null;
    if (this.#batchCounts[outcomeIndex.cleared] !== 0) this.#options.reclaimer.begin();
    if (this.#batchCounts[outcomeIndex.cleared_all] !== 0) {
      // Known to be empty is known wholly.
      this.gap = false;
      this.complete = true;
    }
  }

  /** A lost last message leaves no gap behind it: only the publisher's replay can tell of it. */
  #watchQuiet(): void {
    const { quietCheckMs } = this.#options;
    if (quietCheckMs === 0 || this.registration.replay_endpoint === "") return;
    this.#quietMs = quietCheckMs;
    this.#quietTimer = setInterval(
      () => {
        if (performance.now() - this.#spokeAtMs < this.#quietMs) return;
        this.#quietMs = Math.min(this.#quietMs * 4, Math.max(MAX_QUIET_MS, quietCheckMs));
        this.#spokeAtMs = performance.now();
        this.#healer.begin();
      },
      Math.max(50, quietCheckMs / 4),
    );
  }

  #onConnect(): void {
    this.connected = true;
    // While we were away the publisher may have been replaced; its replay tells.
    if (this.#wasConnected) this.#healer.begin();
    this.#wasConnected = true;
  }

  async #receive(): Promise<void> {
    try {
      // Not by its iterator, which makes two more promises a message.
      const { stillness } = this.#options;
      for (let received = 1; !this.#socket.closed; received++) {
        const batch = readLive(await this.#socket.receive());
        if (stillness.over !== undefined) await stillness.wait();
        if (this.#ending.signal.aborted) return;
        if (batch === undefined) this.counts.malformedFrames++;
        else this.offer(batch.sequence, batch.payload, "event");
        // Messages that are there already would otherwise keep queries waiting.
        if (received % BATCHES_BETWEEN_YIELDS === 0) await turn();
      }
    } catch (error) {
      if (!this.#ending.signal.aborted) {
        this.problem = `the event socket failed: ${(error as Error).message}`;
        this.#options.log.error({ subscription: this.key, err: error }, "the event socket failed");
      }
    }
  }
}

const BATCHES_BETWEEN_YIELDS = 64;
/** Between two questions to a publisher that stays quiet. */
const MAX_QUIET_MS = 60_000;
