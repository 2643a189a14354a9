// A simulated engine: a prefix cache with LRU eviction that publishes what it stores and evicts, and answers replay requests.
import { setTimeout as delay } from "node:timers/promises";
import { REPLAY_END, sequenceFrame } from "@svc/contract/kv-event.ts";
import { Packr } from "msgpackr";
import { Publisher, Router } from "zeromq";

export type EngineOptions = {
  readonly blockSize: number;
  /** The number of blocks that the cache holds; further ones evict the least recently used. */
  readonly capacityBlocks: number;
  /** With 0 the system chooses a free port. */
  readonly port: number;
  readonly replayPort: number;
  readonly host: string;
  /** The number of batches kept for replays, like the engines' buffer_steps. */
  readonly bufferBatches: number;
  readonly rank: number;
  /** Computes the rolling hashes of a prompt's complete blocks. */
  readonly hash: (tokens: Uint32Array, blockSize: number) => BigUint64Array;
};

type Event = Record<string, unknown>;

const packr = new Packr({ useRecords: false });
/** Engines answer replays between two publishes; a pause lets the sockets send. */
const BATCHES_BETWEEN_YIELDS = 32;

export class SimulatedEngine {
  readonly #options: EngineOptions;
  readonly #socket = new Publisher({ linger: 0, sendHighWaterMark: 0 });
  readonly #router = new Router({ linger: 0, sendHighWaterMark: 0 });
  /** Blocks in the order of their last use, each with its depth. */
  readonly #cache = new Map<bigint, number>();
  #buffer: { sequence: bigint; payload: Buffer }[] = [];
  #sequence = 0n;
  #serving: Promise<void> = Promise.resolve();

  constructor(options: EngineOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    const { host, port, replayPort } = this.#options;
    await this.#socket.bind(`tcp://${host}:${port === 0 ? "*" : port}`);
    await this.#router.bind(`tcp://${host}:${replayPort === 0 ? "*" : replayPort}`);
    this.#serving = this.#serve();
  }

  get endpoint(): string {
    return this.#socket.lastEndpoint ?? "";
  }
  get replayEndpoint(): string {
    return this.#router.lastEndpoint ?? "";
  }
  get blocks(): ReadonlySet<bigint> {
    return new Set(this.#cache.keys());
  }
  get batches(): number {
    return Number(this.#sequence);
  }

  /** Runs one prompt: stores missing blocks, evicts what no longer fits, and returns the number of blocks that were hit. */
  async run(tokens: Uint32Array, drop = false): Promise<number> {
    const { blockSize, hash, capacityBlocks } = this.#options;
    const hashes = hash(tokens, blockSize);
    let hit = 0;
    while (hit < hashes.length && this.#cache.has(hashes[hit] as bigint)) hit++;
    // Engines free a prompt's last blocks first, since without its beginning the rest of a prompt is of no use.
    for (let at = hashes.length - 1; at >= 0; at--) this.#use(hashes[at] as bigint, at);
    const events: Event[] = [];
    const fresh = hashes.subarray(hit);
    if (fresh.length > 0) {
      const evicted: bigint[] = [];
      for (const name of this.#cache.keys()) {
        if (this.#cache.size <= capacityBlocks) break;
        this.#cache.delete(name);
        evicted.push(name);
      }
      events.push({
        type: "BlockStored",
        block_hashes: [...fresh],
        parent_block_hash: hit === 0 ? null : hashes[hit - 1],
        token_ids: [...tokens.subarray(hit * blockSize, hashes.length * blockSize)],
        block_size: blockSize,
        lora_id: null,
        medium: "GPU",
      });
      if (evicted.length > 0) events.push({ type: "BlockRemoved", block_hashes: evicted, medium: "GPU" });
    }
    if (events.length > 0) await this.#publish(events, drop);
    return hit;
  }

  async clear(): Promise<void> {
    this.#cache.clear();
    await this.#publish([{ type: "AllBlocksCleared" }], false);
  }

  async close(): Promise<void> {
    this.#socket.close();
    this.#router.close();
    await this.#serving;
  }

  #use(name: bigint, depth: number): void {
    this.#cache.delete(name);
    this.#cache.set(name, depth);
  }

  async #publish(events: Event[], drop: boolean): Promise<void> {
    const payload = packr.pack([Date.now() / 1000, events, this.#options.rank]);
    const sequence = this.#sequence++;
    this.#buffer.push({ sequence, payload });
    if (this.#buffer.length > this.#options.bufferBatches * 2) this.#buffer = this.#buffer.slice(-this.#options.bufferBatches);
    if (!drop) await this.#socket.send(["", sequenceFrame(sequence), payload]);
    if (sequence % BigInt(BATCHES_BETWEEN_YIELDS) === 0n) await delay(0);
  }

  async #serve(): Promise<void> {
    try {
      for await (const [identity, delimiter, start] of this.#router) {
        if (identity === undefined || delimiter?.length !== 0 || start?.length !== 8) continue;
        const from = start.readBigUInt64BE();
        for (const { sequence, payload } of this.#buffer.slice(-this.#options.bufferBatches)) {
          if (sequence >= from) await this.#router.send([identity, "", "", sequenceFrame(sequence), payload]);
        }
        await this.#router.send([identity, "", "", sequenceFrame(REPLAY_END), ""]);
      }
    } catch (error) {
      if (!this.#router.closed) throw error;
    }
  }
}
