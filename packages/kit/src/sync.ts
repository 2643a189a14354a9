// Files and folders brought to the disk: what a power cut must not take along.
import { open } from "node:fs/promises";

/** In this order. A folder's sync keeps the names in it. */
export async function syncAll(paths: readonly string[]): Promise<void> {
  for (const path of paths) {
    const file = await open(path, "r");
    await file.sync().finally(() => file.close());
  }
}
