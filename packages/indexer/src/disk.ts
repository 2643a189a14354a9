// Files that are on the disk when a call returns, or not there at all; a full disk is a failure with its name.
import { open, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { Failure, isDiskFull } from "@svc/contract/failures.ts";

/** DISK_FULL where there was no room; every other error as it is. */
export function asDiskFailure(error: unknown, what: string): unknown {
  if (!isDiskFull(error)) return error;
  return new Failure("DISK_FULL", `${what} cannot be stored: the disk is full; make room and try again`, { cause: error });
}

/** Puts a file in place of the former one, whole or not at all. */
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

/** Renames what is on the disk already, and has the new name there when it returns. */
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
