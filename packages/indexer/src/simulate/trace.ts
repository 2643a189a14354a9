// Prompts to run: from a trace file, or conversations with shared prefixes that are generated from a seed.
import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import { fail } from "@svc/contract/failures.ts";

export type TracedPrompt = { atMs: number; tokens: Uint32Array };

/** The number of tokens that one entry of `hash_ids` stands for in Mooncake's public traces. */
const TRACE_BLOCK_TOKENS = 512;
const VOCABULARY = 128_000;

/** Reads lines of JSON: {"timestamp": ms, "token_ids": [...]}, or {"timestamp": ms, "input_length": n, "hash_ids": [...]}. */
export async function* readTrace(path: string): AsyncGenerator<TracedPrompt> {
  let line = 0;
  for await (const text of createInterface({ input: createReadStream(path) })) {
    line++;
    if (text.trim() === "") continue;
    let entry: { timestamp?: number; token_ids?: number[]; hash_ids?: number[]; input_length?: number };
    try {
      entry = JSON.parse(text);
    } catch (error) {
      return fail("INVALID_REQUEST", `${path}, line ${line} is not valid JSON: ${(error as Error).message}`);
    }
    const tokens = entry.token_ids !== undefined ? Uint32Array.from(entry.token_ids) : tokensOf(entry.hash_ids, entry.input_length);
    if (tokens === undefined) return fail("INVALID_REQUEST", `${path}, line ${line}: expected token_ids, or hash_ids with input_length`);
    yield { atMs: entry.timestamp ?? 0, tokens };
  }
}

/** Equal ids mean equal blocks, so the tokens are derived from the ids. */
function tokensOf(hashIds: number[] | undefined, length: number | undefined): Uint32Array | undefined {
  if (hashIds === undefined) return undefined;
  const tokens = new Uint32Array(Math.min(length ?? Number.POSITIVE_INFINITY, hashIds.length * TRACE_BLOCK_TOKENS));
  for (let i = 0; i < tokens.length; i++)
    tokens[i] = scramble((hashIds[Math.floor(i / TRACE_BLOCK_TOKENS)] ?? 0) * TRACE_BLOCK_TOKENS + (i % TRACE_BLOCK_TOKENS)) % VOCABULARY;
  return tokens;
}

export type Conversations = { prompts: number; systemPrompts: number; systemTokens: number; turnTokens: number; turns: number; seed: number };

/** Generates conversations on a few system prompts; each grows with every turn. */
export function* makeConversations(shape: Conversations): Generator<TracedPrompt> {
  let state = shape.seed;
  const next = () => (state = scramble(state + 1));
  for (let prompt = 0; prompt < shape.prompts; ) {
    const system = next() % shape.systemPrompts;
    const talk = next();
    const turns = 1 + (next() % shape.turns);
    for (let turn = 1; turn <= turns && prompt < shape.prompts; turn++, prompt++) {
      const tokens = new Uint32Array(shape.systemTokens + turn * shape.turnTokens);
      for (let i = 0; i < tokens.length; i++) tokens[i] = scramble(i < shape.systemTokens ? system * 1_000_003 + i : talk + i) % VOCABULARY;
      yield { atMs: prompt, tokens };
    }
  }
}

/** Mixes 32 bits in a fixed way. */
function scramble(value: number): number {
  let x = Math.imul(value ^ (value >>> 16), 0x45d9f3b);
  x = Math.imul(x ^ (x >>> 16), 0x45d9f3b);
  return (x ^ (x >>> 16)) >>> 0;
}
