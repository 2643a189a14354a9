// Disk space that a server reserves, so that it can still record ends and deletions when the rest of the disk is full.
import { closeSync, openSync, statfsSync, statSync, truncateSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { fail, isDiskFull } from "@svc/contract/failures.ts";

const MIB = 1024 * 1024;
/** A portion covers a database's write-ahead log at its full size and the same growth of the file. */
const PORTION_BYTES = 4 * MIB;
/** One portion for each of a node's databases, and a spare one. */
const RESERVE_BYTES = 4 * PORTION_BYTES;
const CHUNK = Buffer.alloc(MIB);
const RETRY_MS = 1_000;

/*
 *   whole ──lend()──▶ broken      New data is refused with DISK_FULL; ends, deletions and restores are still recorded.
 *     ▲                 │
 *     └───refill()──────┘         A refill succeeds once the disk has space; a request for new data tries one at most once a second.
 */
export interface DiskReserve {
  /** @throws DISK_FULL while the reserve is not whole: new data may not use the space that deletions need. */
  mustBeWhole(): void;
  /**
   * Frees a portion on the file system; returns false if none is left. The caller must use the space in the same tick of the event loop,
   * because sandboxes write to the same disk.
   */
  lend(): boolean;
  /** Refills the reserve as far as there is space. */
  refill(): void;
}

/** @throws any error of the file system except a full disk. */
export function openDiskReserve(path: string, nowMs: () => number = () => performance.now()): DiskReserve {
  // I19
  const sizeBytes = () => statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  let isWhole = false;
  let triedAtMs = Number.NEGATIVE_INFINITY;

  function refill(): void {
    triedAtMs = nowMs();
    let file: number | undefined;
    try {
      file = openSync(path, "a", 0o600); // on a full disk even creating the file may fail
      for (let size = sizeBytes(); size < RESERVE_BYTES; ) size += writeSync(file, CHUNK, 0, Math.min(CHUNK.length, RESERVE_BYTES - size));
      isWhole = true;
    } catch (error) {
      if (!isDiskFull(error)) throw error;
    } finally {
      if (file !== undefined) closeSync(file);
    }
  }

  function full(): never {
    const { bavail, bsize } = statfsSync(dirname(path));
    const free = Math.floor((bavail * bsize) / MIB);
    return fail("DISK_FULL", `the disk under ${dirname(path)} is full (${free} MiB free): nothing new is accepted until there is room; deletes work`);
  }

  refill();
  return {
    mustBeWhole() {
      if (!isWhole && nowMs() - triedAtMs >= RETRY_MS) refill();
      if (!isWhole) full();
    },
    lend() {
      const size = sizeBytes();
      isWhole = false;
      triedAtMs = nowMs();
      if (size === 0) return false;
      truncateSync(path, Math.max(0, size - PORTION_BYTES));
      return true;
    },
    refill,
  };
}
