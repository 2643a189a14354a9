// The format of changes in a journal file: framed and checksummed, so that frames are found even behind damage.
import { crc32 } from "node:zlib";
import { ownCopy } from "@svc/kit/byte-buffer.ts";

export type Change = { readonly key: string /** Undefined for a deletion. */; readonly value: Buffer | undefined; readonly leaseMs: number | undefined };

/** A frame, or a range of bytes that is not a frame. `cutOff`: the file ends in the middle of a frame, as after a kill during a write. */
export type Found =
  | { readonly change: Change; readonly bytes: number }
  | { readonly damagedFrom: number; readonly damagedTo: number; readonly cutOff: boolean };

//  0          8       12     13      16        20          24         32
//  | marker   | crc32 | kind | zeros | key len | value len | lease ms | key | value |
// The marker is random and different in each file, so that no value that a client stores can look like a frame.
export const MARKER_BYTES = 8;
const HEADER_BYTES = 32;
const PUT = 1;
const DELETE = 2;

export function frameBytes(change: Change): number {
  return HEADER_BYTES + Buffer.byteLength(change.key) + (change.value?.length ?? 0);
}

export function printFrame(marker: Buffer, change: Change): Buffer {
  const key = Buffer.from(change.key);
  const frame = Buffer.alloc(HEADER_BYTES + key.length + (change.value?.length ?? 0));
  marker.copy(frame);
  frame[12] = change.value === undefined ? DELETE : PUT;
  frame.writeUInt32LE(key.length, 16);
  frame.writeUInt32LE(change.value?.length ?? 0, 20);
  frame.writeDoubleLE(change.leaseMs ?? 0, 24);
  key.copy(frame, HEADER_BYTES);
  change.value?.copy(frame, HEADER_BYTES + key.length);
  frame.writeUInt32LE(crc32(frame.subarray(12)), 8);
  return frame;
}

/** Yields all frames of a file in order, and the unreadable ranges between them. */
export function* readFrames(bytes: Buffer, marker: Buffer): Generator<Found> {
  let at = 0;
  while (at < bytes.length) {
    const found = readFrame(bytes, at, marker);
    if (found !== undefined) {
      yield found;
      at += found.bytes;
      continue;
    }
    const damagedFrom = at;
    do {
      const next = bytes.indexOf(marker, at + 1);
      at = next < 0 ? bytes.length : next;
    } while (at < bytes.length && readFrame(bytes, at, marker) === undefined);
    yield { damagedFrom, damagedTo: at, cutOff: at === bytes.length && isCutOff(bytes.subarray(damagedFrom), marker) };
  }
}

function readFrame(bytes: Buffer, at: number, marker: Buffer): { change: Change; bytes: number } | undefined {
  if (at + HEADER_BYTES > bytes.length || bytes.compare(marker, 0, MARKER_BYTES, at, at + MARKER_BYTES) !== 0) return undefined;
  const keyEnd = at + HEADER_BYTES + bytes.readUInt32LE(at + 16);
  const end = keyEnd + bytes.readUInt32LE(at + 20);
  const kind = bytes[at + 12];
  if (end > bytes.length || (kind !== PUT && kind !== DELETE) || crc32(bytes.subarray(at + 12, end)) !== bytes.readUInt32LE(at + 8)) return undefined;
  const lease = bytes.readDoubleLE(at + 24);
  const value = kind === PUT ? ownCopy(bytes.subarray(keyEnd, end)) : undefined;
  return { change: { key: bytes.toString("utf8", at + HEADER_BYTES, keyEnd), value, leaseMs: lease === 0 ? undefined : lease }, bytes: end - at };
}

/** Returns true if the rest is only the beginning of a frame, or zeros because the file's length reached the disk before its bytes. */
function isCutOff(rest: Buffer, marker: Buffer): boolean {
  if (rest.every((byte) => byte === 0)) return true;
  const begun = Math.min(rest.length, MARKER_BYTES);
  if (rest.compare(marker, 0, begun, 0, begun) !== 0) return false;
  return rest.length < HEADER_BYTES || HEADER_BYTES + rest.readUInt32LE(16) + rest.readUInt32LE(20) > rest.length;
}
