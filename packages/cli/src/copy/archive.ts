// Checks the archive of a tree from a sandbox, entry by entry, before tar reads it: the sandbox may be hostile.
//
//	source ──▶ records and header of an entry: checked, passed to `keep` ──▶ forwarded unchanged, with the content, or dropped
//
// An accepted entry has a name below the root, in a directory that came before it, and no name occurs twice, so nothing is written through a link. `keep`
// decides about the links themselves.
import { posix } from "node:path";
import { textOfBytes } from "@svc/contract/byte-text.ts";
import { Failure, fail } from "@svc/contract/failures.ts";

export type ArchiveEntry = {
  readonly kind: "file" | "hard link" | "link" | "directory" | "special";
  /** Relative to the root, "" for the root itself. */
  readonly path: string;
  readonly target: string;
  readonly mode: number;
  /** A plan has the sizes without the contents. */
  readonly sizeBytes: number;
};

const BLOCK = 512;
/** The limit for the names, the target and the attributes of one entry. */
const MAX_RECORDS_BYTES = 16 * 1024 * 1024;
const kinds: Readonly<Record<string, ArchiveEntry["kind"]>> = { "0": "file", "1": "hard link", "2": "link", "5": "directory", "6": "special" };
const KNOWN_RECORD = /^(path|linkpath|mtime|size|SVC\.size|GNU\.sparse\.(major|minor|name|realsize)|SCHILY\.xattr\.user\..*)$/s;

/** Yields the archive's bytes without the entries that `keep` refuses. */
export async function* checkedArchive(source: AsyncIterable<Buffer>, keep: (entry: ArchiveEntry) => boolean): AsyncGenerator<Buffer> {
  const blocks = new Blocks(source);
  try {
    yield* checkedEntries(blocks, keep);
    yield Buffer.alloc(2 * BLOCK);
  } finally {
    // A response that is not read to its end keeps its connection open.
    await blocks.close();
  }
}

async function* checkedEntries(blocks: Blocks, keep: (entry: ArchiveEntry) => boolean): AsyncGenerator<Buffer> {
  const seen = new Map<string, ArchiveEntry["kind"]>();
  for (;;) {
    const first = await blocks.take(BLOCK);
    if (first[0] === 0) return;
    const size = octal(first, 124, 11);
    if (size > MAX_RECORDS_BYTES) bad("records of an entry that are too long");
    const body = await blocks.take(padded(size));
    const records = recordsOf(body.subarray(0, size));
    const kind = String.fromCharCode(first[156] ?? 0);
    if (kind === "g") throw new Failure("INTERNAL", `the sandbox could not read all: ${records.get("SVC.error")?.toString() ?? "no reason given"}`);
    if (kind !== "x") bad("an entry without records");
    const header = await blocks.take(BLOCK);
    const entry = entryOf(header, records, seen);
    const content = entry.kind === "file" ? padded(numberOf(records.get("size"))) : 0;
    const passes = keep(entry);
    if (passes) {
      seen.set(entry.path, entry.kind);
      yield Buffer.concat([first, body, header]);
    }
    for await (const chunk of blocks.pass(content)) if (passes) yield chunk;
  }
}

function entryOf(header: Buffer, records: ReadonlyMap<string, Buffer>, seen: ReadonlyMap<string, ArchiveEntry["kind"]>): ArchiveEntry {
  const kind = kinds[String.fromCharCode(header[156] ?? 0)] ?? bad("an entry of an unknown kind");
  const name = records.get("path") ?? bad("an entry without a name");
  for (const key of records.keys()) if (!KNOWN_RECORD.test(key)) bad(`the record ${JSON.stringify(key)}`);
  const sparse = records.get("GNU.sparse.name");
  if (sparse !== undefined && (kind !== "file" || !sparse.equals(name))) bad("a file with two names");
  const mode = octal(header, 100, 7);
  if (mode > 0o777) bad(`the mode ${mode.toString(8)}`);
  const path = pathOf(textOfBytes(name), kind, seen);
  const target = textOfBytes(records.get("linkpath") ?? Buffer.alloc(0));
  const entry = { kind, path, target, mode, sizeBytes: numberOf(records.get("SVC.size") ?? records.get("GNU.sparse.realsize") ?? records.get("size")) };
  if (kind !== "hard link") return entry;
  const first = target.startsWith("./") ? target.slice(2) : bad(`a hard link to ${JSON.stringify(target)}`);
  if (seen.get(first) !== "file") bad(`a hard link to ${JSON.stringify(target)}, but no such file came before it`);
  return { ...entry, target: first };
}

function pathOf(name: string, kind: ArchiveEntry["kind"], seen: ReadonlyMap<string, ArchiveEntry["kind"]>): string {
  if (seen.size === 0)
    return (kind === "directory" && name === "./") || (kind === "file" && name === "file") ? "" : bad("an archive that does not begin with its root");
  const path = name.replace(/^\.\//, "").replace(/\/$/, "");
  const parts = path.split("/");
  const isPlain = name.startsWith("./") && parts.every((part) => part !== "" && part !== "." && part !== ".." && !part.includes("\0"));
  const parent = posix.dirname(path);
  if (!isPlain || seen.has(path) || seen.get(parent === "." ? "" : parent) !== "directory") bad(`an entry ${JSON.stringify(name)}`);
  return path;
}

/** Parses records of the form "LENGTH key=value\n". */
function recordsOf(body: Buffer): Map<string, Buffer> {
  const records = new Map<string, Buffer>();
  for (let at = 0; at < body.length; ) {
    const space = body.indexOf(0x20, at);
    const length = numberOf(space < 0 ? undefined : body.subarray(at, space));
    const equals = body.indexOf(0x3d, at);
    const end = at + length;
    if (length < 5 || end > body.length || equals < 0 || equals >= end || body[end - 1] !== 0x0a) bad("records that are damaged");
    const key = body.toString("latin1", space + 1, equals);
    if (records.has(key)) bad(`the record ${JSON.stringify(key)} twice`);
    records.set(key, body.subarray(equals + 1, end - 1));
    at = end;
  }
  return records;
}

function bad(what: string): never {
  return fail("INVALID_REQUEST", `the sandbox sent ${what}: refused`);
}

function numberOf(text: Buffer | undefined): number {
  const value = Number(text?.toString("latin1") ?? "0");
  return Number.isSafeInteger(value) && value >= 0 ? value : bad("a number that is none");
}

function octal(block: Buffer, at: number, digits: number): number {
  const text = block.toString("latin1", at, at + digits);
  return /^[0-7]+$/.test(text) ? Number.parseInt(text, 8) : bad("a damaged header");
}

function padded(size: number): number {
  return Math.ceil(size / BLOCK) * BLOCK;
}

/** Reads a stream in pieces of a known size, or forwards it without a copy. */
class Blocks {
  readonly #source: AsyncIterator<Buffer>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  async close(): Promise<void> {
    await this.#source.return?.();
  }

  async take(size: number): Promise<Buffer> {
    const pieces: Buffer[] = [];
    for await (const piece of this.pass(size)) pieces.push(piece);
    return pieces.length === 1 ? (pieces[0] as Buffer) : Buffer.concat(pieces);
  }

  async *pass(size: number): AsyncGenerator<Buffer> {
    for (let left = size; left > 0; ) {
      if (this.#rest.length === 0) {
        const next = await this.#source.next();
        if (next.done === true) throw new Failure("SERVER_UNREACHABLE", "the sandbox's archive broke off");
        this.#rest = next.value;
      }
      const piece = this.#rest.subarray(0, left);
      this.#rest = this.#rest.subarray(piece.length);
      left -= piece.length;
      yield piece;
    }
  }
}
