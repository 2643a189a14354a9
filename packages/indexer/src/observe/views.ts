// The indexer's own state for clients: registrations with freshness and digests, and pages of everything that it holds.

import { Refusal } from "../http/refusal.ts";
import { EVICTED, metricsOf, type NativeIndex } from "../index/native.ts";
import type { WriteBarrier } from "../index/write-barrier.ts";
import type { Quarantine } from "../registrations/quarantine.ts";
import type { IndexerSettings } from "../settings.ts";
import type { Registry } from "../state/registry.ts";
import type { Snapshots } from "../state/snapshot.ts";
import type { CacheGroup } from "./cache-groups.ts";
import { diagnose } from "./doctor.ts";

const DEFAULT_PAGE = 1000;
const MAX_PAGE = 10_000;

type StreamRow = { stream: number; subscription: number; backend: string; medium: string; rank: number; group?: number; owner?: string; uncertain?: true };
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
type SpacePage = { count: number; spaces: SpaceRow[]; next: number | null };
type BlockPage = { blocks: { space: number; hash: string; streams: number[] }[]; next: number | null };

export type ViewsOptions = {
  readonly index: NativeIndex;
  readonly writeBarrier: WriteBarrier;
  readonly registry: Registry;
  readonly settings: IndexerSettings;
  readonly quarantine: Quarantine;
  readonly snapshots: Snapshots;
  /** Further sentences about discovery and shared registrations. */
  readonly problems: () => readonly string[];
};

export class Views {
  readonly #options: ViewsOptions;
  readonly #index: NativeIndex;
  /** The last digests, and the state of contents and streams that they belong to. */
  #tallied: { changes: number; version: string; tally: ReadonlyMap<number, Tally> } | undefined;
  #asked: Promise<unknown> | undefined;

  constructor(options: ViewsOptions) {
    this.#options = options;
    this.#index = options.index;
  }

  streams(): StreamRow[] {
    return JSON.parse(this.#index.streams()) as StreamRow[];
  }

  /** Computing the digests takes a pass over all blocks: it is not repeated while nothing changes, and concurrent requests share it. */
  services(): Promise<unknown> {
    const { changes } = metricsOf(this.#index);
    if (this.#tallied?.changes === changes && this.#tallied.version === this.#index.streams()) return Promise.resolve(this.#describe(this.#tallied.tally));
    this.#asked ??= this.#options.writeBarrier
      .during(async () => {
        const now = { changes: metricsOf(this.#index).changes, version: this.#index.streams() };
        const tally = new Map((JSON.parse(await this.#index.tally()) as Tally[]).map((row) => [row.stream, row]));
        this.#tallied = { ...now, tally };
        // The description is made before anything changes again, so that sequences and digests of an answer are of one moment.
        return this.#describe(tally);
      })
      .finally(() => {
        this.#asked = undefined;
      });
    return this.#asked;
  }

  #describe(tally: ReadonlyMap<number, Tally>): unknown {
    const { registry, settings } = this.#options;
    const rows = Map.groupBy(this.streams(), ({ subscription }) => subscription);
    const now = Date.now();
    const byEndpoint = Map.groupBy([...registry.subscriptions.values()], ({ registration }) => registration.endpoint);
    const services = [...registry.subscriptions.values()].map((subscription) => ({
      ...subscription.registration,
      kind: subscription.kind,
      freshness: subscription.freshness(now),
      streams: (rows.get(subscription.id) ?? []).map(({ stream, subscription: _, backend, medium, rank, ...more }) => {
        const { blocks = 0, digest = "" } = tally.get(stream) ?? {};
        return { backend_id: backend, medium, dp_rank: rank, ...more, blocks, digest };
      }),
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
      doctor: diagnose(
        subscription,
        {
          complaint: this.#index.complaint(subscription.id),
          silenceMs: settings.silence_seconds * 1000,
          // A store may be registered once for each of its models.
          sharing:
            subscription.kind === "store"
              ? []
              : (byEndpoint.get(subscription.registration.endpoint) ?? []).filter((other) => other !== subscription).map(({ key }) => key),
          evicted: (this.#index.lacks(subscription.id) & EVICTED) !== 0,
          groups: JSON.parse(this.#index.groups(subscription.id)) as CacheGroup[],
        },
        now,
      ),
    }));
    return { count: services.length, doctor: this.#doctor(), services };
  }

  /** Says what is wrong with the indexer itself. */
  #doctor(): string[] {
    const { quarantine, settings, snapshots, problems } = this.#options;
    const says = quarantine.entries.map(({ name, reason }) => `${name}: ${reason}`);
    const { evictedBlocks } = metricsOf(this.#index);
    if (evictedBlocks > 0)
      says.push(
        `${evictedBlocks} blocks were evicted since the start, because indexer.memory_budget_mb (${settings.memory_budget_mb}) is full: matches may be shorter than what the engines have; raise it`,
      );
    if (snapshots.problem !== "") says.push(`the last snapshot could not be written: ${snapshots.problem}`);
    return [...says, ...problems()];
  }

  globalView(parameters: URLSearchParams): unknown {
    const from = whole(parameters, "context_cursor", 0);
    const limit = whole(parameters, "limit", DEFAULT_PAGE);
    if (limit < 1 || limit > MAX_PAGE)
      throw new Refusal("out_of_range", `limit: expected a whole number from 1 to ${MAX_PAGE}, got ${limit}`, { field: "limit" });
    const { count, spaces, next } = JSON.parse(this.#index.spaces(from, limit)) as SpacePage;
    const names = new Map<number, string>();
    const keys = new Map(
      [...this.#options.registry.subscriptions.values()].flatMap(({ generations, registration }) => generations.ids.map((id) => [id, registration])),
    );
    for (const { stream, subscription, rank, medium, uncertain } of this.streams())
      names.set(stream, `${keys.get(subscription)?.instance_id ?? "?"}|${rank}|${medium}${uncertain === true ? "|uncertain" : ""}`);
    const nameOf = (stream: number): string => names.get(stream) ?? "?|0|?";
    // All groups of an engine's KV cache count as one holder.
    const holdersOf = (ids: number[]): string[] => [...new Set(ids.map(nameOf))];
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
      holders: holdersOf(streams),
    }));
    const page = { context_count: count, contexts, next_context_cursor: next };
    if (!parameters.has("cursor")) return page;
    const blocks = JSON.parse(
      this.#index.blocks(whole(parameters, "cursor", 0), limit, parameters.has("context") ? whole(parameters, "context", 0) : -1),
    ) as BlockPage;
    return {
      ...page,
      blocks: blocks.blocks.map(({ space, hash, streams }) => ({ context: space, seq_hash: BigInt(hash), holders: holdersOf(streams) })),
      next_cursor: blocks.next,
    };
  }
}

function whole(parameters: URLSearchParams, name: string, otherwise: number): number {
  const text = parameters.get(name);
  if (text === null) return otherwise;
  if (!/^\d{1,10}$/.test(text)) throw new Refusal("invalid_value", `${name}: expected a whole number, got ${JSON.stringify(text)}`, { field: name });
  return Number(text);
}
