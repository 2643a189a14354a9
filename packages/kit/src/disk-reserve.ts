// Space on the disk that a server keeps for itself, so that it can still record what ends and what is deleted when the rest is full.
import { closeSync, openSync, statfsSync, statSync, truncateSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { fail, isDiskFull } from "@svc/contract/failures.ts";

const MIB = 1024 * 1024;
/** A database's write-ahead log at its full size, and as much growth of the file behind it. */
const PORTION_BYTES = 4 * MIB;
/** One for each of a node's databases, and one more. */
const RESERVE_BYTES = 4 * PORTION_BYTES;
const CHUNK = Buffer.alloc(MIB);
const RETRY_MS = 1_000;

/*
 *   whole ──lend──▶ broken      what grows is refused with DISK_FULL; what ends, deletes or puts back is recorded
 *     ▲                │
 *     └─room is there──┘        looked at before whatever grows, once a second
 */
export interface DiskReserve {
  /** @throws DISK_FULL while the reserve is broken: what room there is belongs to what frees more. */
  mustBeWhole(): void;
  /**
   * Gives a portion back to the file system; false when none is left. The caller takes it in the same turn of the loop: sandboxes
   * write to the same disk.
   */
  lend(): boolean;
  /** Takes what room there is, up to the whole. */
  refill(): void;
}

/** @throws what the file system says, but for a full disk. */
export function openDiskReserve(path: string, nowMs: () => number = () => performance.now()): DiskReserve {
  // I19
  const sizeBytes = () => statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  let isWhole = false;
  let triedAtMs = Number.NEGATIVE_INFINITY;

  function refill(): void {
    triedAtMs = nowMs();
    let file: number | undefined;
    try {
      file = openSync(path, "a", 0o600); // a full disk may not even take the name
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
