// Finds the members of a JSON body without parsing what they hold: a long conversation whose tokens are known costs one pass over its bytes.
// What the scan does not understand plainly, JSON.parse decides; bytes that were never parsed are used only to look for equal ones that were.
import { createHash, hash } from "node:crypto";

/** A deeper body is left to JSON.parse and its own bound. */
const MAX_DEPTH = 500;
const MAX_MEMBERS = 64;
/** Other members up to this length stand in the key as they are. */
const PLAIN_CHARS = 256;
/** A string's end is looked for byte by byte this far, and then by a search of the whole. */
const NEAR = 24;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;

const isSpace = (code: number | undefined) => code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;

/** These change nothing of a prompt's tokens. Every other member is part of the key. */
export const sampling: ReadonlySet<string> = new Set([
  ...["stream", "stream_options", "temperature", "top_p", "top_k", "min_p", "n", "best_of", "seed", "stop", "stop_token_ids", "user", "metadata"],
  ...["max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens", "logprobs", "top_logprobs", "logit_bias", "presence_penalty"],
  ...["frequency_penalty", "repetition_penalty", "cache_salt", "priority", "store", "ignore_eos", "request_id", "service_tier"],
]);

export class BodyScan {
  readonly #bytes: Buffer;
  readonly #list: string;
  readonly #names: readonly string[];
  readonly #starts: readonly number[];
  readonly #ends: readonly number[];

  private constructor(bytes: Buffer, list: string, names: readonly string[], starts: readonly number[], ends: readonly number[]) {
    this.#bytes = bytes;
    this.#list = list;
    this.#names = names;
    this.#starts = starts;
    this.#ends = ends;
  }

  /** `list`: the member whose entries a conversation appends to. Returns undefined for a body that JSON.parse has to judge. */
  static of(bytes: Buffer, list: string): BodyScan | undefined {
    const names: string[] = [];
    const starts: number[] = [];
    const ends: number[] = [];
    let at = afterSpace(bytes, 0);
    if (bytes[at] !== OPEN_OBJECT) return undefined;
    do {
      at = afterSpace(bytes, at + 1);
      const nameEnd = bytes[at] === QUOTE ? afterString(bytes, at) : -1;
      if (nameEnd < 0) return undefined;
      const name = bytes.toString("latin1", at + 1, nameEnd - 1);
      // Names with escapes or other letters, and names that stand twice, are for JSON.parse to read.
      if (!/^[\w-]+$/.test(name) || names.includes(name) || names.length === MAX_MEMBERS) return undefined;
      at = afterSpace(bytes, nameEnd);
      if (bytes[at] !== COLON) return undefined;
      const start = afterSpace(bytes, at + 1);
      const end = afterValue(bytes, start);
      if (end <= start) return undefined;
      names.push(name);
      starts.push(start);
      ends.push(end);
      at = afterSpace(bytes, end);
    } while (bytes[at] === COMMA);
    if (bytes[at] !== CLOSE_OBJECT || afterSpace(bytes, at + 1) !== bytes.length) return undefined;
    const scan = new BodyScan(bytes, list, names, starts, ends);
    return scan.#areValid((name) => name !== list && sampling.has(name)) ? scan : undefined;
  }

  has(name: string): boolean {
    return this.#names.includes(name);
  }

  /** The value of a small member; undefined if it is missing, or is not valid JSON. */
  value(name: string): unknown {
    const at = this.#names.indexOf(name);
    return at < 0 ? undefined : parsed(this.#bytes, this.#starts[at] as number, this.#ends[at] as number);
  }

  /** The token ids that the list has in place of text; undefined if it has anything else, or another member is not valid JSON. */
  tokenIDs(): Uint32Array | undefined {
    const at = this.#names.indexOf(this.#list);
    if (at < 0 || !this.#areValid((name) => name !== this.#list)) return undefined;
    return tokenIDs(this.#bytes, this.#starts[at] as number, this.#ends[at] as number);
  }

  /** A name for all bytes on which the prompt's tokens depend. Undefined if there is no prompt. */
  key(path: string): string | undefined {
    const range = this.#entries();
    if (range === undefined) return undefined;
    return keyOf(this.#others(path), hash("sha1", this.#bytes.subarray(range.start, range.end), "base64"));
  }

  /** The keys of the same prompt with fewer entries, the longest one first. */
  shorterKeys(path: string): string[] {
    const range = this.#entries();
    if (range === undefined || !range.isList) return [];
    const others = this.#others(path);
    const keys: string[] = [];
    const digest = createHash("sha1");
    for (let from = range.start, at = range.start; at < range.end; ) {
      at = afterValue(this.#bytes, at);
      if (at < 0 || at >= range.end) break;
      digest.update(this.#bytes.subarray(from, at));
      keys.push(keyOf(others, digest.copy().digest("base64")));
      from = at;
      at = afterSpace(this.#bytes, afterSpace(this.#bytes, at) + 1);
    }
    return keys.reverse();
  }

  /** The bytes from the list's first entry to its last, or the whole value. */
  #entries(): { start: number; end: number; isList: boolean } | undefined {
    const at = this.#names.indexOf(this.#list);
    if (at < 0) return undefined;
    const start = this.#starts[at] as number;
    const end = this.#ends[at] as number;
    if (this.#bytes[start] !== OPEN_LIST) return { start, end, isList: false };
    const first = afterSpace(this.#bytes, start + 1);
    let last = end - 1;
    while (last > first && isSpace(this.#bytes[last - 1])) last--;
    return last > first ? { start: first, end: last, isList: true } : undefined;
  }

  /** The path, and all members on which tokens depend besides the list. */
  #others(path: string): string {
    let text = path;
    for (const [at, name] of this.#names.entries())
      if (name !== this.#list && !sampling.has(name)) text += `\n${name}:${this.#bytes.toString("latin1", this.#starts[at], this.#ends[at])}`;
    return text.length <= PLAIN_CHARS ? text : hash("sha1", text, "base64");
  }

  #areValid(which: (name: string) => boolean): boolean {
    return this.#names.every((name, at) => !which(name) || parsed(this.#bytes, this.#starts[at] as number, this.#ends[at] as number) !== undefined);
  }
}

const keyOf = (others: string, digest: string): string => `${others}\n${digest}`;

function afterSpace(bytes: Buffer, at: number): number {
  while (isSpace(bytes[at])) at++;
  return at;
}

/** Returns where the string that begins at `at` ends, behind its quote; -1 if it does not. */
function afterString(bytes: Buffer, at: number): number {
  for (let from = at + 1; ; ) {
    let quote = from;
    const near = Math.min(from + NEAR, bytes.length);
    while (quote < near && bytes[quote] !== QUOTE) quote++;
    if (quote === near) quote = bytes.indexOf(QUOTE, near);
    if (quote < 0 || quote >= bytes.length) return -1;
    let escapes = quote;
    while (bytes[escapes - 1] === BACKSLASH) escapes--;
    if ((quote - escapes) % 2 === 0) return quote + 1;
    from = quote + 1;
  }
}

/** Returns where the value that begins at `at` ends; -1 if it does not, or is nested too deeply. */
function afterValue(bytes: Buffer, at: number): number {
  const first = bytes[at];
  if (first === QUOTE) return afterString(bytes, at);
  if (first !== OPEN_OBJECT && first !== OPEN_LIST) {
    for (; at < bytes.length; at++) {
      const code = bytes[at] as number;
      if (code === COMMA || code === CLOSE_OBJECT || code === CLOSE_LIST || isSpace(code)) return at;
    }
    return -1;
  }
  // Brackets inside stand in the bytes of the key; the last one may not, so it must be of the same kind as the first.
  const last = first === OPEN_OBJECT ? CLOSE_OBJECT : CLOSE_LIST;
  for (let depth = 0; at < bytes.length; ) {
    const code = bytes[at] as number;
    if (code === QUOTE) {
      at = afterString(bytes, at);
      if (at < 0) return -1;
      continue;
    }
    at++;
    if (code === OPEN_OBJECT || code === OPEN_LIST) {
      if (++depth > MAX_DEPTH) return -1;
    } else if ((code === CLOSE_OBJECT || code === CLOSE_LIST) && --depth === 0) return code === last ? at : -1;
  }
  return -1;
}

function parsed(bytes: Buffer, start: number, end: number): unknown {
  try {
    return JSON.parse(bytes.toString("utf8", start, end)) as unknown;
  } catch {
    return undefined;
  }
}

const MAX_ID = 0xffffffff;
let scratch = new Uint32Array(16 * 1024);

/** Reads [1,2,3]; undefined for anything but a list of at least one such number. */
function tokenIDs(bytes: Buffer, start: number, end: number): Uint32Array | undefined {
  if (bytes[start] !== OPEN_LIST) return undefined;
  let count = 0;
  for (let at = start + 1; ; at++) {
    at = afterSpace(bytes, at);
    const first = at;
    let id = 0;
    for (let digit = (bytes[at] as number) - 48; digit >= 0 && digit <= 9; digit = (bytes[++at] as number) - 48) id = id * 10 + digit;
    // JSON has no leading zeros.
    if (at === first || id > MAX_ID || at - first > 10 || (bytes[first] === 48 && at > first + 1)) return undefined;
    if (count === scratch.length) {
      const larger = new Uint32Array(2 * count);
      larger.set(scratch);
      scratch = larger;
    }
    scratch[count++] = id;
    at = afterSpace(bytes, at);
    if (bytes[at] === CLOSE_LIST) return at === end - 1 ? scratch.slice(0, count) : undefined;
    if (bytes[at] !== COMMA) return undefined;
  }
}
