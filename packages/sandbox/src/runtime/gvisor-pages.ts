// Checks that a checkpoint's pages file is complete, against the size that its metadata declares.
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Checkpoint, CheckpointKind } from "./runtime.ts";

const METADATA = "pages_meta.img";
const PAGES = "pages.img";
/** Bound on the list of file systems, in gVisor's own encoding, between the metadata of the sandbox's memory and of its file systems. */
const MAX_LIST_BYTES = 64 * 1024;
const LENGTH_BYTES = 8;
const CHUNK_BYTES = 2 ** 30;
const KEPT_VERSION = 3n;

/** More than runsc writes. */
const MAX_KEPT_FILES = 64;
const KEPT_RUN_BYTES = 32;

/**
 * `layersEnd` is the offset where the layers with the files' content end, or 0 if the pages file holds that content too. `keptIn` lists, in
 * order, the pages files mapped by the sandbox that hold pages of this checkpoint.
 */
export type Pages = { readonly bytes: number; readonly layersEnd: number; readonly keptIn: readonly number[] };

// pages_meta.img   length u64 LE, MemoryFileMetadataProto   for the sandbox's memory
//                  length u64 LE, references                pages in earlier files; version 3 only (setup/runsc/files/pkg/sentry/pgalloc/kept.go)
//                  list of file systems                     checkpoints of memory only
//                  length, MemoryFileMetadataProto          for each of them, to the end
// references       files u64 LE, for each its number, for each run: start, end, file, offset
// MemoryFileMetadataProto   1: version   2: chunk of 1 GiB, repeated   3: MemAcctRange, repeated
// MemAcctRange              1: start   2: end   5: its pages are in the file; in version 2 all of them are in separate layers

/**
 * Detects pages that a full file system cut short; their checksum would match the short file.
 * @throws CHECKPOINT_FAILED if the size differs from the metadata, or the metadata cannot be read.
 */
export async function checkPages({ directory, kind }: Checkpoint): Promise<Pages> {
  const metadata = await readFile(join(directory, METADATA)).catch((cause: unknown) =>
    fail("CHECKPOINT_FAILED", `the checkpoint has no ${METADATA}`, { cause }),
  );
  const expected = pagesOf(metadata, kind);
  if (expected === undefined)
    fail("CHECKPOINT_FAILED", `the checkpoint's ${METADATA} (${metadata.length} bytes) cannot be read: it is cut short, or of another version`);
  const { size } = await stat(join(directory, PAGES));
  if (size !== expected.bytes) fail("CHECKPOINT_FAILED", `the checkpoint's ${PAGES} has ${size} bytes where its metadata says ${expected.bytes}`);
  return expected;
}

/** Returns the size of all pages that the metadata names, or undefined if the metadata is not complete. */
export function pagesOf(metadata: Buffer, kind: CheckpointKind): Pages | undefined {
  const first = mainBlock(metadata);
  if (first === undefined) return undefined;
  // Every sandbox has a writable root file system, so metadata of memory that ends before that block was cut short.
  const end = kind === "memory" ? metadata.length - 1 : metadata.length;
  for (let at = first.end; at <= Math.min(end, first.end + MAX_LIST_BYTES); at++) {
    const rest = blocksFrom(metadata, at);
    if (rest !== undefined) return { bytes: first.bytes + rest.bytes, layersEnd: rest.layersEnd, keptIn: first.keptIn };
  }
  return undefined;
}

function mainBlock(metadata: Buffer): (Pages & { readonly end: number }) | undefined {
  const block = blockAt(metadata, 0);
  if (block?.version !== KEPT_VERSION) return block === undefined ? undefined : { ...block, keptIn: [] };
  const length = lengthAt(metadata, block.end);
  if (length === undefined || length < LENGTH_BYTES) return undefined;
  const kept = metadata.subarray(block.end + LENGTH_BYTES, block.end + LENGTH_BYTES + length);
  const word = (at: number) => Number(kept.readBigUInt64LE(at));
  const runsAt = LENGTH_BYTES * (1 + word(0));
  if (word(0) > MAX_KEPT_FILES || runsAt > length || (length - runsAt) % KEPT_RUN_BYTES !== 0) return undefined;
  const keptIn = Array.from({ length: word(0) }, (_, index) => word(LENGTH_BYTES * (1 + index)));
  let bytes = block.bytes;
  for (let at = runsAt; at < length; at += KEPT_RUN_BYTES) bytes -= word(at + LENGTH_BYTES) - word(at);
  return { bytes, layersEnd: 0, keptIn, end: block.end + LENGTH_BYTES + length };
}

/** Sums consecutive blocks up to the end of the metadata. */
function blocksFrom(metadata: Buffer, start: number): Omit<Pages, "keptIn"> | undefined {
  let bytes = 0;
  let layersEnd = 0;
  for (let at = start; at < metadata.length; ) {
    const block = blockAt(metadata, at);
    if (block === undefined) return undefined;
    bytes += block.bytes;
    layersEnd = Math.max(layersEnd, block.layersEnd);
    at = block.end;
  }
  return { bytes, layersEnd };
}

/** Returns undefined if fewer bytes follow than the length says. */
function lengthAt(metadata: Buffer, at: number): number | undefined {
  if (at + LENGTH_BYTES > metadata.length) return undefined;
  const length = metadata.readBigUInt64LE(at);
  return length === 0n || length > BigInt(metadata.length - at - LENGTH_BYTES) ? undefined : Number(length);
}

type Block = Omit<Pages, "keptIn"> & { readonly version: bigint; readonly end: number };

function blockAt(metadata: Buffer, at: number): Block | undefined {
  const length = lengthAt(metadata, at);
  if (length === undefined) return undefined;
  const start = at + LENGTH_BYTES;
  const end = start + length;
  let bytes = 0;
  let version = 0n;
  let chunks = 0;
  const isWhole = eachField(metadata, start, end, (field, value, from) => {
    if (field === 1) version = value;
    if (field === 2) chunks++;
    if (field !== 3) return;
    const range = { start: 0n, end: 0n, isCommitted: false };
    eachField(metadata, from, from + Number(value), (member, number) => {
      if (member === 1) range.start = number;
      if (member === 2) range.end = number;
      if (member === 5) range.isCommitted = number !== 0n;
    });
    if (range.isCommitted) bytes += Number(range.end - range.start);
  });
  if (isWhole && (version === 1n || (version === KEPT_VERSION && at === 0))) return { version, bytes, layersEnd: 0, end };
  return isWhole && version === 2n ? { version, bytes: 0, layersEnd: chunks * CHUNK_BYTES, end } : undefined;
}

/** Calls `see` with each field's number and its value, or its length and offset. Returns false if the bytes are not a message. */
function eachField(text: Buffer, start: number, end: number, see: (field: number, value: bigint, from: number) => void): boolean {
  let at = start;
  const varint = (): bigint | undefined => {
    let value = 0n;
    for (let shift = 0n; shift < 70n && at < end; shift += 7n) {
      const byte = text[at++] as number;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return undefined;
  };
  while (at < end) {
    const key = varint();
    const value = key === undefined ? undefined : varint();
    if (key === undefined || value === undefined) return false;
    const isBytes = (key & 7n) === 2n;
    if (!isBytes && (key & 7n) !== 0n) return false;
    if (isBytes && value > BigInt(end - at)) return false;
    see(Number(key >> 3n), value, at);
    if (isBytes) at += Number(value);
  }
  return true;
}
