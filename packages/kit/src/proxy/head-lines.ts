// The header lines of one head: where each name and value lies in the text, scanned strictly and without copying.
import { byteClass, type HeaderNames, hashStep, sameName, TOKEN, VALUE } from "./header-names.ts";

/** What a scan returns besides the place where the head ends. */
export const INCOMPLETE = 0;
export const REFUSED = -1;

const CR = 13;
const LF = 10;
const SPACE = 32;
const TAB = 9;
const COLON = 58;

/**
 * Filled by `scan` and valid until the next one; one object serves all heads of its kind, since a head is used up
 * before the next is read.
 */
export class HeadLines {
  readonly names: HeaderNames;
  text = "";
  count = 0;
  /** Why the last scan was refused, as a clause. */
  problem = "";
  /** 431 when the head is too large, else 400. */
  problemStatus = 400;
  readonly ids: Uint8Array;
  readonly lineStart: Int32Array;
  readonly nameEnd: Int32Array;
  readonly valueStart: Int32Array;
  readonly valueEnd: Int32Array;
  /** Where the empty line begins. */
  linesEnd = 0;
  /** Per name number: its first line plus one, or 0. */
  readonly first: Uint16Array;
  /** Per name number: whether it came more than once. */
  readonly repeated: Uint8Array;
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

  /** Scans lines from `at` up to the empty line; returns where the body begins, INCOMPLETE or REFUSED. */
  scan(text: string, at: number): number {
    const { names, ids, lineStart, nameEnd, valueStart, valueEnd, first, repeated } = this;
    const length = text.length;
    first.fill(0);
    repeated.fill(0);
    this.text = text;
    let count = 0;
    for (;;) {
      if (at >= length) return INCOMPLETE;
      let code = text.charCodeAt(at);
      if (code === CR) {
        if (at + 1 >= length) return INCOMPLETE;
        if (text.charCodeAt(at + 1) !== LF) return this.refuse("a carriage return stands without a line feed");
        this.count = count;
        this.linesEnd = at;
        lineStart[count] = at;
        return at + 2;
      }
      if (code === SPACE || code === TAB) return this.refuse("a header line is folded (it begins with white space)");
      if (count === this.#maxLines) return this.refuse(`the head has more than ${this.#maxLines} header lines`, 431);
      lineStart[count] = at;
      const start = at;
      let hash = 0;
      while (at < length && ((byteClass[(code = text.charCodeAt(at))] as number) & TOKEN) !== 0) {
        hash = hashStep(hash, code);
        at++;
      }
      if (at >= length) return INCOMPLETE;
      if (code !== COLON || at === start) return this.refuse(nameProblem(code));
      nameEnd[count] = at;
      const id = names.find(text, start, at, hash);
      at++;
      while (at < length && ((code = text.charCodeAt(at)) === SPACE || code === TAB)) at++;
      valueStart[count] = at;
      while (at < length && ((byteClass[(code = text.charCodeAt(at))] as number) & VALUE) !== 0) at++;
      if (at >= length) return INCOMPLETE;
      if (code !== CR) return this.refuse(code === LF ? "a line feed stands without a carriage return" : "a header value has a control character");
      if (at + 1 >= length) return INCOMPLETE;
      if (text.charCodeAt(at + 1) !== LF) return this.refuse("a carriage return stands without a line feed");
      let end = at;
      while (end > (valueStart[count] as number) && ((code = text.charCodeAt(end - 1)) === SPACE || code === TAB)) end--;
      valueEnd[count] = end;
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

  /** The value of the first line with this name; undefined when there is none. */
  value(id: number): string | undefined {
    const line = this.first[id] as number;
    return line === 0 ? undefined : this.text.slice(this.valueStart[line - 1], this.valueEnd[line - 1]);
  }

  /** Whether all lines with this name carry one value. */
  agrees(id: number): boolean {
    if (this.repeated[id] === 0) return true;
    const value = this.value(id);
    for (let line = 0; line < this.count; line++) {
      if (this.ids[line] === id && this.text.slice(this.valueStart[line], this.valueEnd[line]) !== value) return false;
    }
    return true;
  }

  /** Whether a comma-separated list header names `token` (lower case) in any of its lines. */
  lists(id: number, token: string): boolean {
    const line = this.first[id] as number;
    if (line === 0) return false;
    if (this.repeated[id] === 0 && sameName(this.text, this.valueStart[line - 1] as number, this.valueEnd[line - 1] as number, token)) return true;
    return this.tokens(id).includes(token);
  }

  /** Every member of a comma-separated list header, over all its lines, in lower case. */
  tokens(id: number): string[] {
    const tokens: string[] = [];
    for (let line = 0; line < this.count; line++) {
      if (this.ids[line] !== id) continue;
      for (const member of this.text.slice(this.valueStart[line], this.valueEnd[line]).split(",")) {
        const token = member.trim().toLowerCase();
        if (token !== "") tokens.push(token);
      }
    }
    return tokens;
  }
}

function nameProblem(code: number): string {
  if (code === SPACE || code === TAB) return "white space stands between a header's name and its colon";
  if (code === LF) return "a line feed stands without a carriage return";
  if (code === COLON) return "a header has no name";
  return "a header name has a character that is not allowed, or no colon follows it";
}

/** Decimal digits only, at most 15 of them (exact in a number); -1 for anything else. */
export function contentLength(text: string, start: number, end: number): number {
  if (start === end || end - start > 15) return -1;
  let value = 0;
  for (let at = start; at < end; at++) {
    const digit = text.charCodeAt(at) - 48;
    if (digit < 0 || digit > 9) return -1;
    value = value * 10 + digit;
  }
  return value;
}
