// Converts a query in any form to the native one: JSON with exact numbers, msgpack, or raw lists with query parameters.
import { hashQuery, query } from "@svc/contract/indexer.ts";
import { parseJson, parseMsgpack, type SplitProblem, splitRefusal } from "../http/bodies.ts";
import { Refusal, refusalOf } from "../http/refusal.ts";
import type { NativeQuery, SplitBody, TokenOrHashList } from "../index/native.ts";

export type ReadQuery = { query: NativeQuery; list: TokenOrHashList; freshness: boolean };

/** Which list a query has; the numbers are those of `ListKind` in native/src/query_scan.h. */
export const LISTS = { tokens: 0, hashes: 1, either: 2 } as const;
export type Lists = keyof typeof LISTS;

/** Reads what the one-pass scan rejects: the core has read the lists, and only the rest becomes JavaScript values. */
export function readQuery({ rest, problem, token_ids, seq_hashes, block_hash }: SplitBody, msgpack: boolean, lists: Lists): ReadQuery {
  if (problem !== undefined) throw splitRefusal(JSON.parse(problem) as SplitProblem);
  const others = (msgpack ? parseMsgpack : parseJson)(rest) as Record<string, unknown>;
  if ((others as Record<string, unknown> | null)?.["extra_keys"] != null)
    throw new Refusal("unsupported", "extra_keys: a query is matched by tokens or hashes alone; name a LoRA adapter in lora_name and a salt in cache_salt", {
      field: "extra_keys",
    });
  const byHash = lists === "hashes" || (lists === "either" && (seq_hashes ?? block_hash ?? others["seq_hashes"] ?? others["block_hash"]) !== undefined);
  // A list that the core has read is replaced by an empty one, so that the schema checks all other fields.
  const input = byHash
    ? { ...others, ...(seq_hashes === undefined ? {} : { seq_hashes: [] }), ...(block_hash === undefined ? {} : { block_hash: [] }) }
    : { ...others, ...(token_ids === undefined ? {} : { token_ids: [] }) };
  const parsed = (byHash ? hashQuery : query).safeParse(input);
  if (!parsed.success) throw refusalOf(parsed.error, input);
  const given = parsed.data;
  const list = "token_ids" in given ? (token_ids ?? Uint32Array.from(given.token_ids)) : (seq_hashes ?? block_hash ?? hashesOf(given));
  return { query: scopeOf(given), list, freshness: given.freshness === true };
}
type Scope = {
  model: string;
  block_size: number;
  lora_name?: string | null | undefined;
  lora_id?: number | string | null | undefined;
  tenant_id?: string | null | undefined;
  instance_id?: string | null | undefined;
  cache_salt?: string | null | undefined;
  additionalsalt?: string | null | undefined;
};

/** Combines a registration's salt and a request's salt into that of the blocks; must equal `joinedSalt` of native/src/subscriptions.h. */
export function joinedSalt(registered: string, requested: string): string {
  if (registered === "" || requested === registered) return requested;
  return requested === "" ? registered : `${registered}\x1f${requested}`;
}

function scopeOf(given: Scope): NativeQuery {
  const loraName = given.lora_name ?? "";
  // Engines number their adapters from 1, so 0 means the base model.
  const loraId = /^0*$/.test(String(given.lora_id ?? "")) ? "" : (given.lora_id ?? "");
  if (loraName !== "" && loraId !== "")
    throw new Refusal("unsupported", "lora_id: not together with lora_name; lora_id is deprecated, leave it out", { field: "lora_id" });
  return {
    tenant: given.tenant_id || "default",
    model: given.model,
    lora: loraName !== "" ? `n:${loraName}` : loraId !== "" ? `i:${loraId}` : "",
    salt: joinedSalt(given.additionalsalt ?? "", given.cache_salt ?? ""),
    blockSize: given.block_size,
    instance: given.instance_id ?? "",
  };
}

function hashesOf(given: { seq_hashes?: bigint[] | undefined; block_hash?: bigint[] | undefined }): BigUint64Array {
  const hashes = given.seq_hashes ?? given.block_hash;
  if (hashes === undefined) throw new Refusal("missing", "seq_hashes: is missing", { field: "seq_hashes" });
  return BigUint64Array.from(hashes);
}

/** Reads `?freshness=`; the other parameters are for the raw form. */
export function asksFreshness(search: string): boolean {
  const [, asked] = /(?:^|&)freshness=([^&]*)/.exec(search) ?? [];
  if (asked === undefined || /^(0|false|)$/.test(asked)) return false;
  if (/^(1|true)$/.test(asked)) return true;
  throw new Refusal("invalid_value", `freshness: expected 1, true, 0 or false, got ${JSON.stringify(asked.slice(0, 100))}`, { field: "freshness" });
}

/** Reads the raw form: the body is the list itself, little-endian, and everything else is in the URL. */
export function readRaw(body: Buffer, search: string, byHash: boolean): ReadQuery {
  const width = byHash ? 8 : 4;
  if (body.length % width !== 0) throw new Refusal("invalid_value", `the body has ${body.length} bytes, which is not a multiple of ${width}`);
  const query = scopeOfSearch(search);
  // A small body may lie anywhere in a shared buffer, but typed arrays need it aligned.
  const aligned = body.byteOffset % width === 0 ? body : Buffer.from(new Uint8Array(body).buffer);
  const list = byHash
    ? new BigUint64Array(aligned.buffer as ArrayBuffer, aligned.byteOffset, body.length / 8)
    : new Uint32Array(aligned.buffer as ArrayBuffer, aligned.byteOffset, body.length / 4);
  return { query, list, freshness: false };
}

/** Routers send the same few query strings again and again, so parsed ones are cached. */
const MAX_KNOWN_SCOPES = 1024;
const knownScopes = new Map<string, NativeQuery>();

function scopeOfSearch(search: string): NativeQuery {
  const known = knownScopes.get(search);
  if (known !== undefined) return known;
  const query = scopeOf(readScope(new URLSearchParams(search)));
  if (knownScopes.size >= MAX_KNOWN_SCOPES) knownScopes.clear();
  knownScopes.set(search, query);
  return query;
}

const scopeFields = ["model", "block_size", "tenant_id", "instance_id", "lora_name", "lora_id", "cache_salt", "additionalsalt", "freshness", "u64"];

function readScope(parameters: URLSearchParams): Scope {
  for (const name of parameters.keys())
    if (!scopeFields.includes(name)) throw new Refusal("unknown_field", `${name}: there is no such parameter`, { field: name });
    else if (parameters.getAll(name).length > 1) throw new Refusal("invalid_value", `${name}: expected once, got more`, { field: name });
  const model = parameters.get("model") ?? "";
  if (model === "") throw new Refusal("missing", "model: is missing", { field: "model" });
  const text = parameters.get("block_size") ?? "";
  const block_size = Number(text);
  if (text === "") throw new Refusal("missing", "block_size: is missing", { field: "block_size" });
  if (!/^\d{1,10}$/.test(text) || block_size < 1 || block_size > 0xffffffff)
    throw new Refusal("out_of_range", `block_size: expected a whole number of at least 1, got ${JSON.stringify(text)}`, { field: "block_size" });
  return {
    model,
    block_size,
    tenant_id: parameters.get("tenant_id"),
    instance_id: parameters.get("instance_id"),
    lora_name: parameters.get("lora_name"),
    lora_id: parameters.get("lora_id"),
    cache_salt: parameters.get("cache_salt"),
    additionalsalt: parameters.get("additionalsalt"),
  };
}
