// The files of the journal: their names, reading them at the start, and quarantining what cannot be read.
import { randomBytes } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Change, MARKER_BYTES, readFrames } from "./frames.ts";
import type { Place } from "./records.ts";

/** <number>-<marker of its frames>.log */
const FILE_NAME = /^(\d{8})-([0-9a-f]{16})\.log$/;

export type Segment = Place & {
  readonly number: number;
  readonly file: string;
  readonly marker: Buffer;
  sizeBytes: number;
  /** The file has unreadable parts that could not be quarantined, so it must be kept. */
  isUnreadable: boolean;
  /** The number of live bytes when rewriting it last saved too little. */
  triedLiveBytes?: number;
};

/** An unreadable part of the journal, and the location of its quarantined copy. */
export type Damage = { readonly file: string; readonly bytes: number; readonly quarantinedAs: string | undefined; readonly reason: string };

export function newSegment(folder: string, number: number): Segment {
  const marker = randomBytes(MARKER_BYTES);
  const file = join(folder, `${String(number).padStart(8, "0")}-${marker.toString("hex")}.log`);
  return { number, file, marker, sizeBytes: 0, liveBytes: 0, isUnreadable: false };
}

/** Returns the files, oldest first; a missing folder has none. */
export function listSegments(folder: string): Segment[] {
  const segments: Segment[] = [];
  for (const name of namesIn(folder).sort()) {
    const [, number, marker] = FILE_NAME.exec(name) ?? [];
    if (number === undefined || marker === undefined) continue;
    const file = join(folder, name);
    segments.push({ number: Number(number), file, marker: Buffer.from(marker, "hex"), sizeBytes: 0, liveBytes: 0, isUnreadable: false });
  }
  return segments;
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}

/** Passes every change of a file to `take`; unreadable parts are copied to `damagedFolder`. */
export function readSegment(segment: Segment, damagedFolder: string, take: (change: Change) => void): Damage[] {
  let bytes: Buffer;
  try {
    bytes = readFileSync(segment.file);
  } catch (error) {
    segment.isUnreadable = true;
    return [{ file: segment.file, bytes: 0, quarantinedAs: undefined, reason: (error as Error).message }];
  }
  segment.sizeBytes = bytes.length;
  const damages: Damage[] = [];
  for (const found of readFrames(bytes, segment.marker)) {
    if ("change" in found) take(found.change);
    else if (!found.cutOff) damages.push(quarantine(segment, damagedFolder, bytes.subarray(found.damagedFrom, found.damagedTo), found.damagedFrom));
  }
  return damages;
}

function quarantine(segment: Segment, folder: string, bytes: Buffer, from: number): Damage {
  const reason = `${bytes.length} bytes at ${from} are no records, or fail their checksum`;
  const name = join(folder, `${String(segment.number).padStart(8, "0")}-at-${from}.bin`);
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    writeFileSync(name, bytes);
    return { file: segment.file, bytes: bytes.length, quarantinedAs: name, reason };
  } catch (error) {
    segment.isUnreadable = true;
    return { file: segment.file, bytes: bytes.length, quarantinedAs: undefined, reason: `${reason}; they stay there: ${(error as Error).message}` };
  }
}
