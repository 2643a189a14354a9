// The native seam: all that the addon has, and where it is loaded from.
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { fail } from "@svc/contract/failures.ts";

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
};

/** `lora`: "" for the base model, "n:" and a name, or "i:" and an id that came without a name. */
export type NativeQuery = { tenant: string; model: string; lora: string; salt: string; blockSize: number; instance: string };

export type TokenOrHashList = Uint32Array | BigUint64Array;

export interface NativeIndex {
  subscribe(description: NativeSubscription): number;
  unsubscribe(id: number): void;
  /** Drops the subscription's blocks; with `forgetOrder` also what is known of its sequence: its publisher began anew. */
  clear(id: number, forgetOrder: boolean): void;
  /** 1: taken in, with counts by `outcomes` and [timestampMs]; 0: malformed, nothing was applied. */
  apply(id: number, sequence: number, payload: Buffer, counts: Uint32Array, time: Float64Array): number;
  /** 0: not among the last batches, 1: the very same, 2: another batch had this number. */
  seen(id: number, sequence: number, payload: Buffer): number;
  complaint(id: number): string;
  parked(id: number): number;
  /** The answer as JSON text; undefined when the body is not plain enough for the fast reader. */
  answerJson(body: Buffer, byHash: boolean): Buffer | undefined;
  answer(query: NativeQuery, list: TokenOrHashList): Buffer;
  explain(query: NativeQuery, list: TokenOrHashList, depths: Uint32Array): string;
  sequences(tokens: Uint32Array, blockSize: number): BigUint64Array;
  spaces(): string;
  /** Every stream; `tally` has the blocks and digests of the same ones. */
  streams(): string;
  blocks(cursor: number, limit: number, space: number): string;
  figures(): number[];
  /** Frees blocks that were cleared, at most this many looked at; 1 while there are more. What was cleared is not answered anyway. */
  reclaim(most: number): number;
  /** These two read everything on another thread; what would change the index meanwhile blocks (stillness.ts waits instead). */
  tally(): Promise<string>;
  save(note: string): Promise<Buffer>;
  load(snapshot: Buffer): string;
}

/** What became of a batch's events; the order is that of `Outcome` in native/src/index.h. */
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
  "foreign_hashes",
  "standard_hashes",
  "rank_differs",
  "multimodal_blocks",
  "cleared_all",
] as const;
export type Outcome = (typeof outcomes)[number];

export const outcomeIndex = Object.fromEntries(outcomes.map((name, index) => [name, index])) as Record<Outcome, number>;

/** The order is that of `figures` in native/src/addon.cc. */
export const figureNames = [
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
export type Figures = Record<(typeof figureNames)[number], number>;

export function figuresOf(index: NativeIndex): Figures {
  const values = index.figures();
  return Object.fromEntries(figureNames.map((name, at) => [name, values[at] ?? 0])) as Figures;
}

/** A new index; HOST_UNSUITABLE where the addon was not built. */
export function openIndex(budgetBytes: number, seed: bigint): NativeIndex {
  const path = process.env["SVC_INDEXER_NATIVE"] || fileURLToPath(new URL("../native/build/svc_indexer.node", import.meta.url));
  let addon: { NativeIndex: new (budgetBytes: number, seed: bigint) => NativeIndex };
  try {
    addon = createRequire(import.meta.url)(path);
  } catch (error) {
    return fail("HOST_UNSUITABLE", `the indexer's native part cannot be loaded from ${path}: ${(error as Error).message}; ./svc setup builds it`, {
      cause: error,
    });
  }
  return new addon.NativeIndex(budgetBytes, seed);
}
