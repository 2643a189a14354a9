// The cache indexer's POST /score: what is asked of it, and one row per candidate.
import { z } from "zod";

const MAX_CANDIDATES = 4096;
const MAX_TEXT = 1024;
const text = z.string().max(MAX_TEXT);
const name = text.min(1, "must not be empty");
const rate = z.number().positive().max(1e12);

/** The prompt is sent in addition to these members, as `token_ids` or `seq_hashes`. */
export const scoreRequest = z.strictObject({
  model: name,
  tenant_id: text.nullish(),
  lora_name: text.nullish(),
  cache_salt: text.nullish(),
  /** Only engines of this block size; needed with hashes. */
  block_size: z.number().int().min(1).max(0xffffffff).nullish(),
  /** Instances, each with the tokens that wait there before the prompt. All engines of the model if absent. */
  candidates: z
    .array(z.union([name, z.strictObject({ instance_id: name, waiting_tokens: z.number().min(0).max(1e12).nullish() })]))
    .max(MAX_CANDIDATES)
    .nullish(),
  /** Tokens that an engine computes per second. */
  prefill_tokens_per_second: rate.default(8_000),
  /** Tokens per second that an engine loads from outside its device: host memory, disk or store. */
  load_tokens_per_second: rate.default(200_000),
  /** The weight of an uncertain token, as a fraction of a certain one. */
  uncertain_share: z.number().min(0).max(1).default(0.5),
  /** Leaves out the rows of engines that can be chosen and have nothing of the prompt. */
  omit_unmatched: z.boolean().default(false),
});
export type ScoreInput = z.output<typeof scoreRequest>;
export type ScoreRequest = z.input<typeof scoreRequest> & ({ token_ids: readonly number[] } | { seq_hashes: readonly (bigint | string)[] });

export type ScoreRow = {
  /** Expected seconds until the prompt is prefilled; null where the engine must not be chosen. */
  score: number | null;
  /** `dead`: not connected for `indexer.silence_seconds`. */
  state: "live" | "disconnected" | "dead" | "unregistered";
  matched_tokens: number;
  /** Tokens that match in addition if none of the uncertain blocks is gone. */
  uncertain_tokens: number;
  /** The matched tokens that are not on the engine's device. */
  loaded_tokens: number;
  prompt_tokens: number;
  block_size: number | null;
  dp_rank: number | null;
  because: string;
};
/** Scores by tenant, then by instance. */
export type ScoreAnswer = Record<string, Record<string, ScoreRow>>;

/** The members of a score request that go into the URL when its tokens are sent raw. */
export type ScoreScope = {
  readonly model: string;
  readonly tenantID?: string;
  readonly loraName?: string;
  readonly cacheSalt?: string;
  readonly candidates?: readonly string[];
  readonly uncertainShare?: number;
  readonly omitUnmatched?: boolean;
};

export function scoreParameters(scope: ScoreScope): URLSearchParams {
  const parameters = new URLSearchParams({ model: scope.model });
  if (scope.tenantID !== undefined) parameters.set("tenant_id", scope.tenantID);
  if (scope.loraName !== undefined) parameters.set("lora_name", scope.loraName);
  if (scope.cacheSalt !== undefined) parameters.set("cache_salt", scope.cacheSalt);
  if (scope.candidates !== undefined) parameters.set("candidates", scope.candidates.join(","));
  if (scope.uncertainShare !== undefined) parameters.set("uncertain_share", String(scope.uncertainShare));
  if (scope.omitUnmatched === true) parameters.set("omit_unmatched", "true");
  return parameters;
}
