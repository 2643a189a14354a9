// The cache indexer's HTTP API: registrations, queries, and what it says of itself.
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

/** One publisher of KV events; members keep the wire's spelling. */
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

/** What identifies a registration; the other members of the record may come along and are not looked at. */
export const unregistration = z.looseObject({ instance_id: name, tenant_id: text.nullish(), dp_rank: count });

/** A token id, or a hash as an exact number or a decimal string. */
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
  freshness: z.boolean().nullish(),
};
export const query = z.object({ ...scope, token_ids: z.array(count) });
export const hashQuery = z.object({ ...scope, seq_hashes: z.array(u64).optional(), block_hash: z.array(u64).optional() });
export type QueryInput = z.input<typeof query>;
export type HashQueryInput = z.input<typeof hashQuery>;

/** How much of what an instance's answer rests on is current. */
export type Freshness = {
  /** Of the last batch taken in; null before the first. */
  last_sequence: number | null;
  /** From the publisher's clock to our taking the last batch in; it changes with the next one. */
  lag_ms: number | null;
  /** Since the last batch came. */
  age_ms: number | null;
  /** Events were lost and could not be replayed: what is certain now is true but not all. */
  gap: boolean;
  /** Some blocks that lost events can have touched are still answered, as uncertain. */
  uncertain: boolean;
  /** Everything since the publisher's start, or since it cleared all, was taken in and is still there; false while it is not connected. */
  complete: boolean;
  source: "none" | "event" | "replay" | "snapshot";
  connected: boolean;
};

/** One instance's share of a prompt, in tokens. Media other than the three appear where an instance has them. */
export type Match = {
  longest_matched: number;
  GPU: number;
  CPU: number;
  DISK: number;
  DP: Record<string, number>;
  /** Only where there are such blocks: by how many tokens the figures would be larger if none of the uncertain blocks is gone. */
  uncertain?: { longest_matched: number; DP: Record<string, number> };
  freshness?: Record<string, Freshness>;
};
/** By tenant, then by instance. */
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
