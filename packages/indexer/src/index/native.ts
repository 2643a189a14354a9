// The native seam: the addon's interface, and where it is loaded from.
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { fail } from "@svc/contract/failures.ts";
import type { Freshness } from "@svc/contract/indexer.ts";

export type NativeSubscription = {
  instance: string;
  tenant: string;
  model: string;
  lora: string;
  salt: string;
  key: string;
  blockSize: number;
  rank: number;
  store: 0 | 1;
  /** Each physical copy of a block is stored and removed by an event of its own. */
  countsCopies?: boolean;
};

/** `lora`: "" for the base model, "n:" and a name, or "i:" and an id that came without a name. */
export type NativeQuery = { tenant: string; model: string; lora: string; salt: string; blockSize: number; instance: string };

export type SplitBody = { rest: Buffer; token_ids?: Uint32Array; seq_hashes?: BigUint64Array; block_hash?: BigUint64Array; problem?: string };

export type TokenOrHashList = Uint32Array | BigUint64Array;

export interface NativeIndex {
  subscribe(description: NativeSubscription): number;
  unsubscribe(id: number): void;
  /** With 1, the subscription's blocks no longer count in answers, and its freshness says so; with 0 they count again. */
  setDead(id: number, dead: 0 | 1): void;
  /** Drops the subscription's blocks and its sequence state: its publisher started again. */
  clear(id: number): void;
  /** Events were lost: the blocks that they may have affected are uncertain from here on. */
  lose(id: number): void;
  /**
   * Returns MALFORMED: nothing was applied; TAKEN, with counts by `outcomes` and [timestampMs]; or MORE: `applyMore` must continue the
   * batch, and nothing else is applied before. The payload is read only during the call.
   */
  apply(id: number, sequence: number, payload: Buffer, counts: Uint32Array, time: Float64Array): number;
  applyMore(id: number, counts: Uint32Array): number;
  /** The data-parallel ranks that a subscription serves: the registered one, and those of its batches. */
  ranks(id: number): number[];
  /** Returns 0 if the batch is not among the last ones, 1 if it is the same, 2 if another batch had this number. */
  seen(id: number, sequence: number, payload: Buffer): number;
  /** Returns the bits EVICTED and UNCERTAIN: why an answer may lack blocks of the subscription. */
  lacks(id: number): number;
  /** The groups of an engine's KV cache, as its events describe them. */
  groups(id: number): string;
  /** Drops the blocks that a loss may have affected. */
  forgetUncertain(id: number): void;
  complaint(id: number): string;
  parked(id: number): number;
  /**
   * Scans a plain query's body, which must stay unchanged until `answerScanned`. Returns UNUSUAL if `splitQuery` must read it, PLAIN, or
   * WANTS_FRESHNESS. `lists`: see query-input.ts.
   */
  scan(body: Buffer, msgpack: boolean, lists: number): number;
  /** Returns 1 if a body begins as a batch of queries, and sets the position of the first one: three numbers that `scanNext` advances. */
  scanBatch(body: Buffer, msgpack: boolean, position: Uint32Array): number;
  /** Works like `scan` for the query at the position; BATCH_END after the last one. */
  scanNext(body: Buffer, msgpack: boolean, position: Uint32Array): number;
  /** Answers as JSON text or msgpack, with freshness if its table is given (freshness.ts). */
  answerScanned(packed: boolean, freshness: Float64Array | null): Buffer;
  /** Reads a query's lists up to the first fault, and returns the body without them. */
  splitQuery(body: Buffer, msgpack: boolean): SplitBody;
  /** Works like `splitQuery` on another thread; the body must stay unchanged meanwhile. */
  splitLater(body: Buffer, msgpack: boolean): Promise<SplitBody>;
  /** Finds where each query of a batch begins and ends in the body. */
  splitBatch(body: Buffer, msgpack: boolean): { rest: Buffer; count: number; spans?: Uint32Array; problem?: string };
  answer(query: NativeQuery, list: TokenOrHashList, packed?: boolean, freshness?: Float64Array | null): Buffer;
  explain(query: NativeQuery, list: TokenOrHashList, depths: Uint32Array): string;
  sequences(tokens: Uint32Array, blockSize: number): BigUint64Array;
  /** Returns a page of the namespaces and their total number. */
  spaces(cursor: number, limit: number): string;
  /** Returns every stream; `tally` has the blocks and digests of the same ones. */
  streams(): string;
  blocks(cursor: number, limit: number, space: number): string;
  metrics(): number[];
  /** Frees cleared blocks, looking at `most` blocks at most; returns 1 while there are more. Cleared blocks are not in answers anyway. */
  reclaim(most: number): number;
  /**
   * `tally` and `save` read everything on another thread (`save` writes a new file and returns its size); changes block meanwhile, so
   * write-barrier.ts makes them wait.
   */
  tally(): Promise<string>;
  save(path: string, note: string): Promise<number>;
  /** Reads a snapshot's file, and returns the note that was saved with it. */
  load(path: string): string;
}

/**
 * Bits of `lacks`. EVICTED: the memory budget evicted blocks since the publisher last started or cleared everything. UNCERTAIN: a loss may
 * have affected blocks that answers still have as uncertain.
 */
export const EVICTED = 1;
export const UNCERTAIN = 2;

export const MALFORMED = 0;
export const MORE = 2;

/** Results of `scan` and `scanNext`. */
export const UNUSUAL = 0;
export const WANTS_FRESHNESS = 2;
export const BATCH_END = 3;

/** A freshness source is its index here. The addon must name the same ones in this order, or it is not loaded. */
export const freshnessSources: readonly Freshness["source"][] = ["none", "event", "replay", "snapshot"];

/** Outcomes of a batch's events. The addon must name the same ones in this order, or it is not loaded. */
export const outcomes = [
  "events",
  "blocks_stored",
  "blocks_removed",
  "cleared",
  "parked",
  "unparked",
  "park_dropped",
  "duplicate_event_id",
  "event_id_jump",
  "malformed_event",
  "unknown_event",
  "no_hash",
  "remote",
  "other_cache_group",
  "model_differs",
  "block_size_differs",
  "lora_differs",
  "salt_differs",
  "token_count_differs",
  "tokens_missing",
  "parent_missing",
  "too_many_streams",
  "over_budget",
  "removed_unknown",
  "wrong_seed",
  "engine_hashes",
  "standard_hashes",
  "rank_differs",
  "multimodal_blocks",
  "cleared_all",
  "lost_removal",
] as const;
export type Outcome = (typeof outcomes)[number];

export const outcomeIndex = Object.fromEntries(outcomes.map((name, index) => [name, index])) as Record<Outcome, number>;

/** The names of the native metrics, checked like `outcomes`. */
export const metricNames = [
  "bytes",
  "budgetBytes",
  "indexBytes",
  "nameBytes",
  "blocks",
  "evictedBlocks",
  "holderSets",
  "namespaces",
  "queries",
  "askedBlocks",
  "matchedBlocks",
  "changes",
] as const;
export type NativeMetrics = Record<(typeof metricNames)[number], number>;

export function metricsOf(index: NativeIndex): NativeMetrics {
  const values = index.metrics();
  return Object.fromEntries(metricNames.map((name, at) => [name, values[at] ?? 0])) as NativeMetrics;
}

/** Opens a new index. @throws HOST_UNSUITABLE if the addon was not built. */
export function openIndex(budgetBytes: number, seed: bigint): NativeIndex {
  const path = process.env["SVC_INDEXER_NATIVE"] || fileURLToPath(new URL("../../native/build/svc_indexer.node", import.meta.url));
  let addon: { NativeIndex: new (budgetBytes: number, seed: bigint) => NativeIndex; outcomeNames: string[]; metricNames: string[]; freshnessSources: string[] };
  try {
    addon = createRequire(import.meta.url)(path);
  } catch (error) {
    return fail("HOST_UNSUITABLE", `the indexer's native part cannot be loaded from ${path}: ${(error as Error).message}; ./svc setup builds it`, {
      cause: error,
    });
  }
  const [theirs, ours] = [
    [addon.outcomeNames, addon.metricNames, addon.freshnessSources],
    [outcomes, metricNames, freshnessSources],
  ];
  if (String(theirs) !== String(ours))
    fail("HOST_UNSUITABLE", `the indexer's native part at ${path} has another version than its TypeScript part; ./svc setup builds it`);
  return new addon.NativeIndex(budgetBytes, seed);
}
