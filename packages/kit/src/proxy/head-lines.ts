// The header lines of one head: the offsets of each name and value, scanned strictly and without copying.
import { byteClass, type HeaderNames, sameName, TOKEN } from "./header-names.ts";

/** Results of a scan besides the offset where the head ends. */
export const INCOMPLETE = 0;
export const REFUSED = -1;

const CR = 13;
const LF = 10;
const SPACE = 32;
const TAB = 9;
const COLON = 58;
const HYPHEN = 45;
const DELETE = 0x7f;

const nothing = Buffer.alloc(0);

/** Filled by `scan` and valid until the next one; one object serves all heads of its kind, since each head is processed before the next is read. */
export class HeadLines {
  readonly names: HeaderNames;
  count = 0;
  /** The reason why the last scan was refused, as a clause. */
  problem = "";
  /** 431 if the head is too large, else 400. */
  problemStatus = 400;
  readonly ids: Uint8Array;
  readonly lineStart: Int32Array;
  readonly nameEnd: Int32Array;
  readonly valueStart: Int32Array;
  readonly valueEnd: Int32Array;
  /** Offset of the empty line. All offsets count from the head's first byte. */
  linesEnd = 0;
  /** Per name number: its first line plus one, or 0. */
  readonly first: Uint16Array;
  /** Per name number: 1 if it occurred more than once. */
  readonly repeated: Uint8Array;
  protected bytes: Buffer = nothing;
  protected base = 0;
  #text: string | undefined;
  readonly #maxLines: number;

  constructor(names: HeaderNames, maxLines: number) {
    this.names = names;
    this.#maxLines = maxLines;
    this.ids = new Uint8Array(maxLines);
    this.lineStart = new Int32Array(maxLines + 1);
    this.nameEnd = new Int32Array(maxLines);
    this.valueStart = new Int32Array(maxLines);
    this.valueEnd = new Int32Array(maxLines);
    this.first = new Uint16Array(names.names.length + 1);
    this.repeated = new Uint8Array(names.names.length + 1);
  }

  /** Starts on the head at [start, end) of `bytes`, which must not change while this object is used. */
  protected open(bytes: Buffer, start: number): void {
    this.bytes = bytes;
    this.base = start;
    this.#text = undefined;
    this.first.fill(0);
    this.repeated.fill(0);
  }

  /** The head as text, one character per byte, decoded on first use. */
  get text(): string {
    return (this.#text ??= this.bytes.toString("latin1", this.base, this.base + this.linesEnd + 2));
  }

  /**
   * Scans lines from `at` (in `bytes`) up to the empty line; returns the offset of the body, INCOMPLETE or REFUSED. It reads bytes instead of
   * text, since reading characters of a string takes three times as long.
   */
  protected scan(at: number, end: number): number {
    const { bytes, base, names, ids, lineStart, nameEnd, valueStart, valueEnd, first, repeated } = this;
    let count = 0;
    for (;;) {
      if (at >= end) return INCOMPLETE;
      let code = bytes[at] as number;
      if (code === CR) {
        if (at + 1 >= end) return INCOMPLETE;
        if (bytes[at + 1] !== LF) return this.refuse("a carriage return stands without a line feed");
        this.count = count;
        this.linesEnd = at - base;
        lineStart[count] = at - base;
        return at + 2;
      }
      if (code === SPACE || code === TAB) return this.refuse("a header line is folded (it begins with white space)");
      if (count === this.#maxLines) return this.refuse(`the head has more than ${this.#maxLines} header lines`, 431);
      lineStart[count] = at - base;
      const start = at;
      // Letters and hyphens are tested first: nearly all names have no other character, and a comparison is cheaper than the table.
      while (at < end && (isLetter((code = bytes[at] as number)) || code === HYPHEN || ((byteClass[code] as number) & TOKEN) !== 0)) at++;
      if (at >= end) return INCOMPLETE;
      if (code !== COLON || at === start) return this.refuse(nameProblem(code));
      nameEnd[count] = at - base;
      const id = names.find(bytes, start, at);
      at++;
      while (at < end && ((code = bytes[at] as number) === SPACE || code === TAB)) at++;
      const valueFrom = at;
      while (at < end && (((code = bytes[at] as number) >= SPACE && code !== DELETE) || code === TAB)) at++;
      if (at >= end) return INCOMPLETE;
      if (code !== CR) return this.refuse(code === LF ? "a line feed stands without a carriage return" : "a header value has a control character");
      if (at + 1 >= end) return INCOMPLETE;
      if (bytes[at + 1] !== LF) return this.refuse("a carriage return stands without a line feed");
      let valueTo = at;
      while (valueTo > valueFrom && ((code = bytes[valueTo - 1] as number) === SPACE || code === TAB)) valueTo--;
      valueStart[count] = valueFrom - base;
      valueEnd[count] = valueTo - base;
      ids[count] = id;
      count++;
      if (id !== 0) {
        if (first[id] === 0) first[id] = count;
        else repeated[id] = 1;
      }
      at += 2;
    }
  }

  refuse(problem: string, status = 400): typeof REFUSED {
    this.problem = problem;
    this.problemStatus = status;
    return REFUSED;
  }

  has(id: number): boolean {
    return this.first[id] !== 0;
  }

  /** Returns the value of the first line with this name, or undefined. */
  value(id: number): string | undefined {
    const line = this.first[id] as number;
    return line === 0 ? undefined : this.text.slice(this.valueStart[line - 1], this.valueEnd[line - 1]);
  }

  #valueIs(line: number, word: string): boolean {
    return sameName(this.bytes, this.base + (this.valueStart[line] as number), this.base + (this.valueEnd[line] as number), word);
  }

  /** Says whether there is exactly one line with this name and its value is `word` (lower case), in any case. */
  isOnly(id: number, word: string): boolean {
    return this.repeated[id] === 0 && this.first[id] !== 0 && this.#valueIs((this.first[id] as number) - 1, word);
  }

  /** Says whether the first line with this name has the value `secret`. Every character is compared, so the time reveals only the length. */
  carries(id: number, secret: string): boolean {
    const line = (this.first[id] as number) - 1;
    if (line < 0) return false;
    const start = this.base + (this.valueStart[line] as number);
    const length = this.base + (this.valueEnd[line] as number) - start;
    if (length !== secret.length || length === 0) return false;
    const { bytes } = this;
    let difference = 0;
    for (let at = 0; at < length; at++) difference |= (bytes[start + at] as number) ^ secret.charCodeAt(at);
    return difference === 0;
  }

  /** Returns the value of the first line with this name as a decimal number of digits only, or -1. */
  decimal(id: number): number {
    const line = (this.first[id] as number) - 1;
    return line < 0 ? -1 : decimal(this.bytes, this.base + (this.valueStart[line] as number), this.base + (this.valueEnd[line] as number));
  }

  /** Says whether all lines with this name have the same value. */
  agrees(id: number): boolean {
    if (this.repeated[id] === 0) return true;
    const value = this.value(id);
    for (let line = 0; line < this.count; line++) {
      if (this.ids[line] === id && this.text.slice(this.valueStart[line], this.valueEnd[line]) !== value) return false;
    }
    return true;
  }

  /** Says whether a comma-separated list header names `token` (lower case) in any of its lines. */
  lists(id: number, token: string): boolean {
    const line = this.first[id] as number;
    if (line === 0) return false;
    if (this.repeated[id] === 0 && this.#valueIs(line - 1, token)) return true;
    return this.tokens(id).includes(token);
  }

  /** Returns the values of all lines with this name. */
  values(id: number): string[] {
    const values: string[] = [];
    for (let line = 0; line < this.count; line++) if (this.ids[line] === id) values.push(this.text.slice(this.valueStart[line], this.valueEnd[line]));
    return values;
  }

  /** Returns every member of a comma-separated list header, over all its lines, in lower case. */
  tokens(id: number): string[] {
    const members = this.values(id).flatMap((value) => value.split(","));
    return members.map((member) => member.trim().toLowerCase()).filter((token) => token !== "");
  }
}

function isLetter(code: number): boolean {
  const lower = code | 0x20;
  return lower >= 97 && lower <= 122;
}

function nameProblem(code: number): string {
  if (code === SPACE || code === TAB) return "white space stands between a header's name and its colon";
  if (code === LF) return "a line feed stands without a carriage return";
  if (code === COLON) return "a header has no name";
  return "a header name has a character that is not allowed, or no colon follows it";
}

/** Parses up to 15 decimal digits (exact in a number); returns -1 for anything else. */
export function decimal(bytes: Uint8Array, start: number, end: number): number {
  if (start === end || end - start > 15) return -1;
  let value = 0;
  for (let at = start; at < end; at++) {
    const digit = (bytes[at] as number) - 48;
    if (digit < 0 || digit > 9) return -1;
    value = value * 10 + digit;
  }
  return value;
}
