// What the indexer tells about itself: registrations with freshness and digests, and pages of everything it holds.
import { diagnose } from "./doctor.ts";
import { figuresOf, type NativeIndex } from "./native.ts";
import { Refusal } from "./refusal.ts";
import type { Registry } from "./registry.ts";
import type { IndexerSettings } from "./settings.ts";
import type { Stillness } from "./stillness.ts";

const DEFAULT_PAGE = 1000;
const MAX_PAGE = 10_000;

type StreamRow = { stream: number; subscription: number; backend: string; medium: string; rank: number };
type Tally = { stream: number; blocks: number; digest: string };
type SpaceRow = {
  space: number;
  tenant: string;
  model: string;
  lora: string;
  salt: string;
  pairs: boolean;
  block_size: number;
  blocks: number;
  streams: number[];
};
type BlockPage = { blocks: { space: number; hash: string; streams: number[] }[]; next: number | null };

export class Views {
  readonly #index: NativeIndex;
  readonly #registry: Registry;
  readonly #settings: IndexerSettings;
  readonly #stillness: Stillness;
  /** Of contents and streams as they were. */
  #tallied: { changes: number; version: string; tally: ReadonlyMap<number, Tally> } | undefined;
  #asked: Promise<unknown> | undefined;

  constructor(index: NativeIndex, stillness: Stillness, registry: Registry, settings: IndexerSettings) {
    this.#index = index;
    this.#stillness = stillness;
    this.#registry = registry;
    this.#settings = settings;
  }

  streams(): StreamRow[] {
    return JSON.parse(this.#index.streams()) as StreamRow[];
  }

  /** Digests take a pass over all blocks: it is not repeated while nothing changes, and is one for all that ask meanwhile. */
  services(): Promise<unknown> {
    const { changes } = figuresOf(this.#index);
    if (this.#tallied?.changes === changes && this.#tallied.version === this.#index.streams()) return Promise.resolve(this.#describe(this.#tallied.tally));
    this.#asked ??= this.#stillness
      .during(async () => {
        const now = { changes: figuresOf(this.#index).changes, version: this.#index.streams() };
        const tally = new Map((JSON.parse(await this.#index.tally()) as Tally[]).map((row) => [row.stream, row]));
        this.#tallied = { ...now, tally };
        // Before anything changes again: sequences and digests of one answer are of one moment.
        return this.#describe(tally);
      })
      .finally(() => {
        this.#asked = undefined;
      });
    return this.#asked;
  }

  #describe(tally: ReadonlyMap<number, Tally>): unknown {
    const rows = this.streams().map((row) => ({ blocks: 0, digest: "", ...row, ...tally.get(row.stream) }));
    const now = Date.now();
    const services = [...this.#registry.subscriptions.values()].map((subscription) => ({
      ...subscription.registration,
      kind: subscription.kind,
      freshness: subscription.freshness(now),
      streams: rows
        .filter(({ subscription: id }) => id === subscription.id)
        .map(({ backend, medium, rank, blocks, digest }) => ({ backend_id: backend, medium, dp_rank: rank, blocks, digest })),
      batches: {
        received: subscription.counts.batches,
        replayed: subscription.counts.replayedBatches,
        duplicate: subscription.counts.duplicateBatches,
        malformed: subscription.counts.malformedFrames,
        gaps: subscription.counts.gaps,
        gaps_healed: subscription.counts.healedGaps,
        gaps_lost: subscription.counts.lostGaps,
        restarts: subscription.counts.restarts,
      },
      events: subscription.counts.named(),
      parked: this.#index.parked(subscription.id),
      doctor: diagnose(subscription, this.#index.complaint(subscription.id), this.#settings.silence_seconds * 1000, now),
    }));
    return { count: services.length, services };
  }

  globalView(parameters: URLSearchParams): unknown {
    const spaces = JSON.parse(this.#index.spaces()) as SpaceRow[];
    const instances = new Map(this.streams().map((row) => [row.stream, row]));
    const keys = new Map([...this.#registry.subscriptions.values()].map((subscription) => [subscription.id, subscription.registration]));
    const nameOf = (stream: number): string => {
      const row = instances.get(stream);
      const registration = row === undefined ? undefined : keys.get(row.subscription);
      return `${registration?.instance_id ?? "?"}|${row?.rank ?? 0}|${row?.medium ?? "?"}`;
    };
    const contexts = spaces.map(({ space, tenant, model, lora, salt, pairs, block_size, blocks, streams }) => ({
      context: space,
      model_name: model,
      lora_name: lora.startsWith("n:") ? lora.slice(2) : "",
      ...(lora.startsWith("i:") ? { lora_id: lora.slice(2) } : {}),
      tenant_id: tenant,
      additional_salt: salt,
      block_size,
      bigram: pairs,
      prefix_count: blocks,
      holders: streams.map(nameOf),
    }));
    const from = whole(parameters, "context_cursor", 0);
    const limit = Math.min(whole(parameters, "limit", DEFAULT_PAGE), MAX_PAGE);
    const page = {
      context_count: contexts.length,
      contexts: contexts.slice(from, from + limit),
      next_context_cursor: from + limit < contexts.length ? from + limit : null,
    };
    if (!parameters.has("cursor")) return page;
    const blocks = JSON.parse(
      this.#index.blocks(whole(parameters, "cursor", 0), limit, parameters.has("context") ? whole(parameters, "context", 0) : -1),
    ) as BlockPage;
    return {
      ...page,
      blocks: blocks.blocks.map(({ space, hash, streams }) => ({ context: space, seq_hash: BigInt(hash), holders: streams.map(nameOf) })),
      next_cursor: blocks.next,
    };
  }
}

function whole(parameters: URLSearchParams, name: string, otherwise: number): number {
  const text = parameters.get(name);
  if (text === null) return otherwise;
  if (!/^\d{1,10}$/.test(text)) throw new Refusal("invalid_value", `${name}: found ${JSON.stringify(text)}, asked for a whole number`, { field: name });
  return Number(text);
}
