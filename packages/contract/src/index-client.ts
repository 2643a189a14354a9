// A client of the cache indexer for authors of routers: the hash routine, queries in the cheapest form, registrations.
import { createXXHash3 } from "hash-wasm";
import { failureOf } from "./call.ts";
import { Failure, fail } from "./failures.ts";
import { type ScoreAnswer, type ScoreScope, scoreParameters } from "./index-score.ts";
import type { QueryAnswer, RegistrationInput } from "./indexer.ts";
import { DEFAULT_HASH_SEED } from "./kv-event.ts";

const DEFAULT_TIMEOUT_MS = 5_000;

/** Computes the rolling hashes of a prompt's complete blocks, as the standard defines them. */
export type PromptHasher = (tokens: Uint32Array, blockSize: number) => BigUint64Array;

/** Creates the hash routine, which is synchronous afterwards. */
export async function openHasher(seed: number = DEFAULT_HASH_SEED): Promise<PromptHasher> {
  const xxh3 = await createXXHash3(seed >>> 0, Math.floor(seed / 2 ** 32));
  const hash = (bytes: Uint8Array): bigint => BigInt(`0x${xxh3.init().update(bytes).digest("hex")}`);
  const both = new Uint8Array(16);
  const pair = new DataView(both.buffer);
  return (tokens, blockSize) => {
    const blocks = Math.floor(tokens.length / blockSize);
    const out = new BigUint64Array(blocks);
    const bytes = new Uint8Array(blockSize * 4);
    const view = new DataView(bytes.buffer);
    for (let block = 0; block < blocks; block++) {
      for (let i = 0; i < blockSize; i++) view.setUint32(i * 4, tokens[block * blockSize + i] as number, true);
      const local = hash(bytes);
      if (block === 0) {
        out[0] = local;
        continue;
      }
      pair.setBigUint64(0, out[block - 1] as bigint, true);
      pair.setBigUint64(8, local, true);
      out[block] = hash(both);
    }
    return out;
  };
}

export type QueryScope = {
  readonly model: string;
  readonly blockSize: number;
  readonly tenantID?: string;
  readonly instanceID?: string;
  readonly loraName?: string;
  readonly cacheSalt?: string;
  readonly freshness?: boolean;
};

export type IndexClientOptions = {
  /** Default 5,000. */
  readonly timeoutMs?: number;
  /** The key to register and unregister, if the indexer requires one. */
  readonly apiKey?: string | undefined;
};

export class IndexClient {
  readonly #baseURL: string;
  readonly #timeoutMs: number;
  readonly #apiKey: string | undefined;

  /** @throws Failure INVALID_REQUEST if `baseURL` is not a URL. */
  constructor(baseURL: string, { timeoutMs = DEFAULT_TIMEOUT_MS, apiKey }: IndexClientOptions = {}) {
    if (!/^https?:\/\/./i.test(baseURL) || !URL.canParse(baseURL))
      fail("INVALID_REQUEST", `expected the URL of a cache indexer, http://HOST:PORT, got ${JSON.stringify(baseURL)}`);
    this.#baseURL = baseURL.replace(/\/+$/, "");
    this.#timeoutMs = timeoutMs;
    this.#apiKey = apiKey;
  }

  /** Queries by tokens, which are sent as raw little-endian u32, so that the server need not parse them. */
  query(tokens: Uint32Array, scope: QueryScope): Promise<QueryAnswer> {
    return this.#ask<QueryAnswer>("/query", scope, tokens);
  }

  /** Queries by rolling hashes of `openHasher`, which are sent as raw little-endian u64. */
  queryByHash(hashes: BigUint64Array, scope: QueryScope): Promise<QueryAnswer> {
    return this.#ask<QueryAnswer>("/query_by_hash", scope, hashes);
  }

  /** One row per candidate: the expected seconds until the prompt is prefilled there, and why. */
  score(tokens: Uint32Array, scope: ScoreScope): Promise<ScoreAnswer> {
    const bytes = new Uint8Array(tokens.buffer as ArrayBuffer, tokens.byteOffset, tokens.byteLength);
    return this.#send(`/score?${scoreParameters(scope)}`, bytes, "application/octet-stream");
  }

  register(record: RegistrationInput): Promise<{ status: string; instance_id: string }> {
    return this.#send("/register", JSON.stringify(record), "application/json");
  }

  unregister(key: { instance_id: string; tenant_id?: string; dp_rank: number }): Promise<{ status: string; removed_instances: string[] }> {
    return this.#send("/unregister", JSON.stringify(key), "application/json");
  }

  services(): Promise<unknown> {
    return this.#send("/services");
  }

  #ask<T>(path: string, scope: QueryScope, list: Uint32Array | BigUint64Array): Promise<T> {
    const parameters = new URLSearchParams({ model: scope.model, block_size: String(scope.blockSize) });
    if (scope.tenantID !== undefined) parameters.set("tenant_id", scope.tenantID);
    if (scope.instanceID !== undefined) parameters.set("instance_id", scope.instanceID);
    if (scope.loraName !== undefined) parameters.set("lora_name", scope.loraName);
    if (scope.cacheSalt !== undefined) parameters.set("cache_salt", scope.cacheSalt);
    if (scope.freshness === true) parameters.set("freshness", "1");
    const bytes = new Uint8Array(list.buffer as ArrayBuffer, list.byteOffset, list.byteLength);
    return this.#send(`${path}?${parameters}`, bytes, "application/octet-stream");
  }

  async #send<T>(path: string, body?: string | Uint8Array<ArrayBuffer>, type?: string): Promise<T> {
    const url = this.#baseURL + path;
    let response: Response;
    try {
      response = await fetch(url, {
        method: body === undefined ? "GET" : "POST",
        ...(body === undefined ? {} : { body }),
        headers: {
          ...(body === undefined ? {} : { "content-type": type ?? "application/json" }),
          ...(this.#apiKey === undefined ? {} : { "x-api-key": this.#apiKey }),
        },
        signal: AbortSignal.timeout(this.#timeoutMs),
      });
    } catch (error) {
      throw new Failure("SERVER_UNREACHABLE", `no cache indexer answers at ${this.#baseURL}; is it running, and is the URL right?`, { cause: error });
    }
    const answer = await response.text();
    if (!response.ok) throw failureOf(response.status, response.headers.get("retry-after"), answer);
    return JSON.parse(answer) as T;
  }
}
