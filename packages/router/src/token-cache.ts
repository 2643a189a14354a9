// Rendered prompts by their messages: equal conversations are tokenized once, and a longer one finds its beginning.
import { createHash } from "node:crypto";
import { sampling } from "./body-scan.ts";
import type { Body } from "./prompt.ts";

const ENTRY_BYTES = 256;

export type CacheKeys = {
  /** One key for the prompt with its first message, one with its first two, and so on; the last one is the whole prompt's. */
  readonly chain: readonly string[];
};

export class TokenCache {
  readonly #maxBytes: number;
  readonly #entries = new Map<string, Uint32Array>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get(key: string): Uint32Array | undefined {
    const tokens = this.#entries.get(key);
    if (tokens === undefined) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, tokens);
    return tokens;
  }

  set(key: string, tokens: Uint32Array): void {
    const known = this.#entries.get(key);
    if (known !== undefined) {
      this.#entries.delete(key);
      this.#bytes -= known.byteLength + ENTRY_BYTES;
    }
    this.#entries.set(key, tokens);
    this.#bytes += tokens.byteLength + ENTRY_BYTES;
    for (const [oldest, { byteLength }] of this.#entries) {
      if (this.#bytes <= this.#maxBytes) break;
      this.#entries.delete(oldest);
      this.#bytes -= byteLength + ENTRY_BYTES;
    }
  }
}

/** `list`: the member whose entries a conversation appends to. */
export function cacheKeys(path: string, body: Body, list: "messages" | "input" | "prompt"): CacheKeys {
  const fixed = Object.entries(body)
    .filter(([name]) => name !== list && !sampling.has(name))
    .sort(([one], [other]) => (one < other ? -1 : 1));
  let digest = hashed(path, JSON.stringify(fixed));
  const items = body[list];
  if (!Array.isArray(items)) return { chain: [hashed(digest, JSON.stringify(items) ?? "")] };
  const chain: string[] = [];
  for (const item of items) {
    digest = hashed(digest, JSON.stringify(item));
    chain.push(digest);
  }
  return { chain };
}

const hashed = (before: string, text: string) => createHash("sha1").update(before).update("\0").update(text).digest("base64");
