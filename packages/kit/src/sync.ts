// Syncs files and folders to the disk, so that they survive a power cut.
import { open } from "node:fs/promises";

/** Syncs the paths in this order. Syncing a folder keeps the names in it. */
export async function syncAll(paths: readonly string[]): Promise<void> {
  for (const path of paths) {
    const file = await open(path, "r");
    await file.sync().finally(() => file.close());
  }
}
