// One sandbox's log on disk: JSON lines in two files of bounded size, appended to and read back in order of time.
import { closeSync, fstatSync, openSync, read, readFileSync, renameSync, rmSync, statSync, writeSync } from "node:fs";
import { promisify } from "node:util";
import type { LogEntry } from "@svc/contract/observe.ts";

/** A full file becomes the older one of two, and the previous older one is removed. */
export const LOG_FILE_BYTES = 2 * 1024 * 1024;

/**
 * A line: {"t":1764000000000,"k":"process","l":"info","m":"…","f":{…},"r":"…","s":7}
 * `t` comes first with 13 digits, so that a file can be searched by time without parsing. No two lines of a sandbox have the same `t`. Lines of
 * processes are stored in the order in which they were fetched, not by time. `r` and `s` are envd's run and number.
 */
export type Line = {
  readonly t: number;
  readonly k: string;
  readonly l: LogEntry["level"];
  readonly m: string;
  readonly f?: Readonly<Record<string, string>>;
  readonly r?: string;
  readonly s?: number;
};

/** The size of one write; a file may exceed its bound by this much. */
const BATCH_BYTES = 64 * 1024;
const HEAD = Buffer.from('{"t":');
const TIME_AT = HEAD.length;
const TIME_DIGITS = 13;
const NEWLINE = 10;
const CLOSING = 0x7d;

/** A line's time and its position in the text. */
export type LinePosition = { readonly t: number; readonly start: number; readonly end: number };

export class LogFile {
  readonly #path: string;
  readonly #maxBytes: number;
  #sizeBytes: number;
  /** True if the file may end within a line, after a kill or on a full disk. */
  #isTorn: boolean;

  constructor(path: string, maxBytes = LOG_FILE_BYTES) {
    this.#path = path;
    this.#maxBytes = maxBytes;
    this.#sizeBytes = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
    this.#isTorn = this.#sizeBytes > 0;
  }

  get #older(): string {
    return `${this.#path}.1`;
  }

  /** @throws the file system's error; a part of `lines` may be written then. */
  append(lines: readonly string[]): void {
    let batch = "";
    for (const line of lines) {
      batch += `${line}\n`;
      if (batch.length >= BATCH_BYTES) {
        this.#write(batch);
        batch = "";
      }
    }
    if (batch !== "") this.#write(batch);
  }

  #write(batch: string): void {
    const text = Buffer.from(this.#isTorn ? `\n${batch}` : batch);
    if (this.#sizeBytes > 0 && this.#sizeBytes + text.length > this.#maxBytes) {
      renameSync(this.#path, this.#older);
      this.#sizeBytes = 0;
    }
    const file = openSync(this.#path, "a", 0o600);
    this.#isTorn = true;
    try {
      for (let at = 0; at < text.length; ) at += writeSync(file, text, at);
      this.#sizeBytes += text.length;
      this.#isTorn = false;
    } finally {
      closeSync(file);
    }
  }

  /** Returns both files as one text, read synchronously so that no rotation happens in between. */
  read(): Buffer {
    return Buffer.concat([readExisting(this.#older), Buffer.from("\n"), readExisting(this.#path)]);
  }

  /** As `read`, without blocking the event loop; returns what was in both files at the call. */
  async readLater(): Promise<Buffer> {
    // Both are opened in one tick: a rotation afterwards changes names, but not the open files.
    const files = [this.#older, this.#path].map(openExisting);
    const texts: Buffer[] = [];
    try {
      for (const file of files) texts.push(file === undefined ? Buffer.alloc(0) : await readOpened(file));
    } finally {
      for (const file of files) if (file !== undefined) closeSync(file.fd);
    }
    return Buffer.concat([texts[0] ?? Buffer.alloc(0), Buffer.from("\n"), texts[1] ?? Buffer.alloc(0)]);
  }

  remove(): void {
    for (const path of [this.#path, this.#older]) rmSync(path, { force: true });
    this.#sizeBytes = 0;
    this.#isTorn = false;
  }
}

const readFrom = promisify(read);

type Opened = { readonly fd: number; readonly sizeBytes: number };

function openExisting(path: string): Opened | undefined {
  try {
    const fd = openSync(path, "r");
    return { fd, sizeBytes: fstatSync(fd).size };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

async function readOpened({ fd, sizeBytes }: Opened): Promise<Buffer> {
  const text = Buffer.allocUnsafe(sizeBytes);
  let at = 0;
  while (at < sizeBytes) {
    const { bytesRead } = await readFrom(fd, text, at, sizeBytes - at, at);
    if (bytesRead === 0) break;
    at += bytesRead;
  }
  return text.subarray(0, at);
}

function readExisting(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return Buffer.alloc(0);
    throw error;
  }
}

/** Returns every complete line, in order of time. */
export function positionsOf(text: Buffer): LinePosition[] {
  const positions: LinePosition[] = [];
  let isSorted = true;
  let last = 0;
  for (let start = 0; start < text.length; ) {
    const newline = text.indexOf(NEWLINE, start);
    const end = newline < 0 ? text.length : newline;
    const t = timeAt(text, start, end);
    if (t !== undefined) {
      isSorted &&= t >= last;
      last = t;
      positions.push({ t, start, end });
    }
    start = end + 1;
  }
  return isSorted ? positions : positions.sort((a, b) => a.t - b.t);
}

function timeAt(text: Buffer, start: number, end: number): number | undefined {
  if (end - start < TIME_AT + TIME_DIGITS || text[end - 1] !== CLOSING) return undefined;
  for (let at = 0; at < TIME_AT; at++) if (text[start + at] !== HEAD[at]) return undefined;
  let t = 0;
  for (let at = start + TIME_AT; at < start + TIME_AT + TIME_DIGITS; at++) {
    const digit = (text[at] as number) - 48;
    if (digit < 0 || digit > 9) return undefined;
    t = t * 10 + digit;
  }
  return t;
}

/** Returns undefined for an invalid line: one that a crash cut short and a later line was appended to. */
export function lineAt(text: Buffer, { start, end }: LinePosition): Line | undefined {
  try {
    return JSON.parse(text.toString("utf8", start, end)) as Line;
  } catch {
    return undefined;
  }
}
