// A publisher for stream-model.test.ts: real sockets, a table, a bounded buffer, and faults that a seeded generator chooses.
import { setTimeout as delay } from "node:timers/promises";
import { REPLAY_END, sequenceFrame } from "@svc/contract/kv-event.ts";
import { Packr } from "msgpackr";
import { Publisher, Router } from "zeromq";

const packr = new Packr({ useRecords: false });
/** The number of table slots that a batch of a dump covers. */
const PER_BATCH = 3;

/** Mulberry32: the same seed gives the same history. */
export function seeded(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * below);
  };
}

export type Key = { readonly hash: bigint; readonly tokens: readonly number[] };
type Batch = { readonly sequence: number; readonly payload: Buffer; readonly isEmpty: boolean; readonly life: number };

export class ModelPublisher {
  readonly held = new Set<number>();
  readonly story: string[] = [];
  calm = false;
  readonly #kind: "engine" | "store";
  readonly #numbered: boolean;
  readonly #buffered: number;
  readonly #keys: readonly Key[];
  readonly #folder: string;
  readonly #below: (below: number) => number;
  #live = new Publisher({ linger: 0 });
  #router = new Router({ linger: 0 });
  #sequence = 0;
  #eventId = 0;
  #buffer: Batch[] = [];
  /** Batches that are published, but not on the wire yet. */
  #flight: Batch[] = [];
  /** Counts processes: an answer of a former one may still be under way. */
  #life = 0;
  #closed = false;
  #time = 0;
  readonly #answers = new Set<Promise<void>>();

  constructor(kind: "engine" | "store", keys: readonly Key[], folder: string, below: (below: number) => number) {
    this.#kind = kind;
    this.#numbered = kind === "store" || below(2) === 0;
    this.#buffered = below(3) === 0 ? 12 : 200;
    this.#keys = keys;
    this.#folder = folder;
    this.#below = below;
  }

  get endpoint(): string {
    return `ipc://${this.#folder}/live`;
  }

  get replayEndpoint(): string {
    return `ipc://${this.#folder}/replay`;
  }

  async open(): Promise<void> {
    await this.#live.bind(this.endpoint);
    await this.#router.bind(this.replayEndpoint);
    void this.#serve(this.#router);
  }

  /** Publishes a batch of events, which is not on the wire yet. */
  publish(): void {
    const events = Array.from({ length: 1 + this.#below(3) }, () => this.#event());
    this.#push(events);
  }

  /** Puts the batches in flight on the wire: in calm all of them, otherwise some are lost, doubled or late. */
  async deliver(count: number): Promise<void> {
    for (let left = count; left > 0 && this.#flight.length > 0; left--) {
      const batch = this.#flight.shift() as Batch;
      const chance = this.calm ? 99 : this.#below(100);
      // The first batch of a process that took over without a reconnect must arrive, since only it reveals the change.
      const mayBeLost = this.#kind === "store" || batch.sequence > 0;
      if (chance < 15 && mayBeLost) {
        this.story.push(`lost ${batch.sequence}`);
        continue;
      }
      if (chance >= 15 && chance < 25) this.#later(batch);
      if (chance >= 25 && chance < 30 && mayBeLost) {
        this.#later(batch);
        continue;
      }
      this.story.push(`live ${batch.sequence}`);
      await this.#live.send(["", sequenceFrame(BigInt(batch.sequence)), batch.payload]);
    }
  }

  /** Starts another process: an engine has nothing and begins at 0; a store has its keys, but not its buffer. */
  async restart(): Promise<void> {
    this.#life++;
    this.#buffer = [];
    if (this.#below(2) === 0) this.#flight = [];
    this.story.push(`restart (in flight: ${this.#flight.map(({ sequence }) => sequence)})`);
    if (this.#kind === "engine") {
      this.#sequence = this.#eventId = 0;
      this.held.clear();
    } else {
      // A master that forgot something leaves a number out; one that takes over sends a greeting; one that was only restarted sends
      // nothing.
      const how = this.#below(3);
      if (how === 0) for (const slot of [...this.held]) if (this.#below(8) === 0) this.held.delete(slot);
      if (how === 0) this.#sequence++;
      if (how < 2) this.#push([]);
    }
    if (this.#below(3) > 0) return;
    // The process listens again, and the bytes on the wire are lost with the connection.
    this.story.push("listens again");
    this.#live.close();
    this.#router.close();
    this.#live = new Publisher({ linger: 0 });
    this.#router = new Router({ linger: 0 });
    for (;;)
      try {
        await this.#live.bind(this.endpoint);
        break;
      } catch {
        await delay(5);
      }
    for (;;)
      try {
        await this.#router.bind(this.replayEndpoint);
        break;
      } catch {
        await delay(5);
      }
    void this.#serve(this.#router);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#live.close();
    this.#router.close();
    await Promise.allSettled(this.#answers);
  }

  #later(batch: Batch): void {
    let at = 1 + this.#below(5);
    const end = this.#flight.findIndex(({ life }) => life !== batch.life);
    at = Math.min(at, end < 0 ? this.#flight.length : end);
    this.#flight.splice(at, 0, batch);
  }

  #push(events: unknown[]): void {
    const batch = { sequence: this.#sequence++, payload: this.#payload(events), isEmpty: events.length === 0, life: this.#life };
    this.#buffer.push(batch);
    if (this.#buffer.length > this.#buffered) this.#buffer.shift();
    this.#flight.push(batch);
  }

  #payload(events: unknown[]): Buffer {
    return packr.pack([++this.#time, events, 0]);
  }

  #event(): unknown {
    const slot = this.#below(this.#keys.length);
    if (this.#kind === "engine" && this.#below(40) === 0) {
      this.held.clear();
      return ["AllBlocksCleared"];
    }
    if (this.held.delete(slot)) return this.#described("removed", slot, this.#numbered ? this.#eventId++ : null);
    this.held.add(slot);
    return this.#described("stored", slot, this.#numbered ? this.#eventId++ : null);
  }

  #described(event_type: "stored" | "removed", slot: number, event_id: number | null): object {
    const { hash, tokens } = this.#keys[slot] as Key;
    const stored = event_type === "stored" ? { base_block_idx: 0, parent_hash: null, token_ids: tokens } : {};
    return { event_id, event_type, medium: "cpu", tenant_id: "default", seq_hashes: [hash], ...stored };
  }

  async #serve(router: Router): Promise<void> {
    try {
      for await (const [identity = Buffer.alloc(0), , start = Buffer.alloc(8)] of router) {
        const answer = this.#answer(router, identity, Number(start.readBigUInt64BE())).catch(() => {});
        this.#answers.add(answer);
        void answer.finally(() => this.#answers.delete(answer));
      }
    } catch {
      // closed
    }
  }

  async #answer(router: Router, identity: Buffer, from: number): Promise<void> {
    const fate = this.calm ? 99 : this.#below(100);
    // The batches of an engine that ended may still be on the wire.
    const outlives = this.#kind === "engine" && this.#below(2) === 0;
    const life = this.#life;
    const name = `replay from ${from}`;
    if (fate < 10) return void this.story.push(`${name}: no answer`);
    if (fate < 20) await delay(5 + this.#below(40));
    const breaksAt = fate >= 20 && fate < 35 ? this.#below(6) : Number.POSITIVE_INFINITY;
    const pauseMs = fate >= 35 && fate < 65 ? 1 + this.#below(12) : 0;
    let sent = 0;
    this.story.push(`${name}: begins (${breaksAt}, ${pauseMs} ms)`);
    for (const { sequence, payload } of this.#kind === "store" ? this.#storeAnswer(from) : this.#buffer.filter((one) => one.sequence >= from)) {
      if (this.#closed || sent++ === breaksAt || (life !== this.#life && !outlives)) return void this.story.push(`${name}: breaks off`);
      await router.send([identity, "", sequenceFrame(BigInt(sequence)), payload]);
      this.story.push(`${name}: ${sequence}`);
      if (pauseMs > 0 && !this.calm) await delay(pauseMs);
    }
    if (life !== this.#life && !outlives) return;
    this.story.push(`${name}: ends`);
    await router.send([identity, "", sequenceFrame(REPLAY_END), ""]);
  }

  /**
   * Answers like a master: with what it has from there on, or every key under the numbers right before the next batch's, and then what came
   * since.
   */
  *#storeAnswer(from: number): Generator<{ sequence: number; payload: Buffer }> {
    const oldest = this.#buffer[0]?.sequence ?? this.#sequence;
    let at = from;
    if (from < oldest) {
      const end = (at = this.#sequence - (this.#buffer.at(-1)?.isEmpty === true ? 1 : 0));
      const batches = Math.min(Math.ceil(this.#keys.length / PER_BATCH), end);
      const first = end - batches;
      const endId = this.#eventId;
      let id = endId - Math.min(endId, this.held.size);
      const slotOf = (batch: number) => Math.floor((this.#keys.length * batch) / batches);
      for (let made = 0; made < batches; made++) {
        const events: object[] = [];
        for (let slot = slotOf(made); slot < slotOf(made + 1); slot++)
          if (this.held.has(slot)) events.push(this.#described("stored", slot, id < endId ? id++ : null));
        yield { sequence: first >= from ? first + made : Math.min(from + made, end - 1), payload: this.#payload(events) };
      }
      if (this.#sequence === end) this.#push([]);
    }
    for (let next = this.#buffer.find(({ sequence }) => sequence >= at); next !== undefined; next = this.#buffer.find(({ sequence }) => sequence >= at)) {
      yield next;
      at = next.sequence + 1;
    }
  }
}
