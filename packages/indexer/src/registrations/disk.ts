// Durable file operations: when a call returns, its change is on disk completely or not at all. A full disk is the failure DISK_FULL.
import { open, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { Failure, isDiskFull } from "@svc/contract/failures.ts";

/** Converts the error of a full disk to DISK_FULL and returns every other error unchanged. */
export function asDiskFailure(error: unknown, what: string): unknown {
  if (!isDiskFull(error)) return error;
  return new Failure("DISK_FULL", `${what} cannot be stored: the disk is full; make room and try again`, { cause: error });
}

/** Replaces a file atomically. */
export async function writeDurably(path: string, text: string): Promise<void> {
  const fresh = `${path}.new`;
  try {
    const file = await open(fresh, "w");
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    await replace(fresh, path);
  } catch (error) {
    await rm(fresh, { force: true }).catch(() => {});
    throw error;
  }
}

/** Renames a file that is already on disk, and returns once the new name is durable. */
export async function replace(fresh: string, path: string): Promise<void> {
  await rename(fresh, path);
  await syncFolder(dirname(path));
}

export async function removeDurably(path: string): Promise<void> {
  await rm(path, { force: true });
  await syncFolder(dirname(path));
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, "r").catch(() => undefined);
  if (folder === undefined) return;
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
