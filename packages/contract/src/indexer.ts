// The cache indexer's HTTP API: registrations, queries, and its status.
import { z } from "zod";
import { operation } from "./operation.ts";

const MAX_TEXT = 1024;
const MAX_U32 = 0xffffffff;
const MAX_U64 = 0xffffffffffffffffn;

const text = z.string().max(MAX_TEXT);
const name = text.min(1, "must not be empty");
const count = z.number().int().min(0).max(MAX_U32);
const size = z.number().int().min(1).max(MAX_U32);
const optionalText = text.nullish().transform((value) => value ?? "");

/** One publisher of KV events; the members have the names of the wire format. */
export const registration = z.strictObject({
  endpoint: name,
  replay_endpoint: optionalText,
  type: name,
  modelname: name,
  lora_name: optionalText,
  tenant_id: text.nullish().transform((value) => (value === undefined || value === null || value === "" ? "default" : value)),
  instance_id: name,
  block_size: size,
  dp_rank: count,
  additionalsalt: optionalText,
});
export type Registration = z.output<typeof registration>;
export type RegistrationInput = z.input<typeof registration>;

/** The members that identify a registration; the other members of the record are accepted and ignored. */
export const unregistration = z.looseObject({ instance_id: name, tenant_id: text.nullish(), dp_rank: count });

/** A token id or a hash, as an exact number or a decimal string. */
export const u64 = z.union([
  z.bigint().min(0n).max(MAX_U64),
  z
    .number()
    .int()
    .min(0)
    .max(Number.MAX_SAFE_INTEGER)
    .transform((value) => BigInt(value)),
  z
    .string()
    .regex(/^\d{1,20}$/, "expected decimal digits")
    .transform((value) => BigInt(value))
    .refine((value) => value <= MAX_U64, "above 2^64 - 1"),
]);

const scope = {
  model: name,
  lora_name: text.nullish(),
  lora_id: z.union([count, text]).nullish(),
  tenant_id: text.nullish(),
  instance_id: text.nullish(),
  block_size: size,
  cache_salt: text.nullish(),
  /** The engines' own salt, as registered, where requests have another one. */
  additionalsalt: text.nullish(),
  freshness: z.boolean().nullish(),
};
export const query = z.object({ ...scope, token_ids: z.array(count) });
export const hashQuery = z.object({ ...scope, seq_hashes: z.array(u64).optional(), block_hash: z.array(u64).optional() });
export type QueryInput = z.input<typeof query>;
export type HashQueryInput = z.input<typeof hashQuery>;

/** How current the data behind an instance's answer is. */
export type Freshness = {
  /** The sequence number of the last batch that was applied; null before the first. */
  last_sequence: number | null;
  /** The time from the publisher's timestamp until we applied the last batch; it changes with the next one. */
  lag_ms: number | null;
  /** The time since the last batch. */
  age_ms: number | null;
  /** Events were lost and could not be replayed: certain blocks are correct but incomplete. */
  gap: boolean;
  /** Some blocks that lost events may have affected are still answered, as uncertain. */
  uncertain: boolean;
  /** True if all events since the publisher's start or last clear were applied and no block of them was evicted; false while it is not connected. */
  complete: boolean;
  source: "none" | "event" | "replay" | "snapshot";
  connected: boolean;
  /** dead: it has not answered for `indexer.silence_seconds`, and none of its blocks counts until it does. */
  state: PublisherState;
};
export type PublisherState = "live" | "disconnected" | "dead";

/** The part of a prompt that an instance has, in tokens. Media other than the three appear if an instance has them. */
export type Match = {
  longest_matched: number;
  GPU: number;
  CPU: number;
  DISK: number;
  DP: Record<string, number>;
  /** Present only if there are uncertain blocks: how many more tokens would match if none of them is gone. */
  uncertain?: { longest_matched: number; DP: Record<string, number> };
  freshness?: Record<string, Freshness>;
};
/** Matches by tenant, then by instance. */
export type QueryAnswer = Record<string, Record<string, Match>>;

const anyAnswer = z.custom<QueryAnswer>((value) => typeof value === "object" && value !== null);
const registerAnswer = z.object({ status: z.string(), instance_id: z.string() });
const unregisterAnswer = z.object({ status: z.string(), removed_instances: z.array(z.string()) });
const failures = ["INVALID_REQUEST", "METHOD_NOT_ALLOWED", "PAYLOAD_TOO_LARGE"] as const;

export const indexerOperations = {
  register: operation({
    name: "register",
    method: "POST",
    path: "/register",
    summary: "Subscribe to a publisher of KV events",
    input: registration,
    output: registerAnswer,
    success: 200,
    credential: "none",
    failures: [...failures, "UNAUTHENTICATED", "REGISTRATION_CONFLICT", "DISK_FULL"],
  }),
  unregister: operation({
    name: "unregister",
    method: "POST",
    path: "/unregister",
    summary: "End a subscription and purge what it gave",
    input: unregistration,
    output: unregisterAnswer,
    success: 200,
    credential: "none",
    failures: [...failures, "UNAUTHENTICATED", "REGISTRATION_NOT_FOUND"],
  }),
  query: operation({
    name: "query",
    method: "POST",
    path: "/query",
    summary: "Matched prefix per instance, by tokens",
    input: query,
    output: anyAnswer,
    success: 200,
    credential: "none",
    failures,
  }),
  queryByHash: operation({
    name: "queryByHash",
    method: "POST",
    path: "/query_by_hash",
    summary: "Matched prefix per instance, by rolling hashes",
    input: hashQuery,
    output: anyAnswer,
    success: 200,
    credential: "none",
    failures,
  }),
} as const;

export const REGISTERED = "registered successfully";
export const UNREGISTERED = "unregistered successfully";
