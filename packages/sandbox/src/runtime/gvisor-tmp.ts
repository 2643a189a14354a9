// Keeps /tmp in a file system checkpoint even when it is empty: over an empty /tmp runsc lays a file system in memory at the next
// start, and what is written there would not be in the checkpoint after that.
import { open } from "node:fs/promises";
import { join } from "node:path";
import type { Spawner } from "@svc/kit/spawn.ts";
import { directoryEntry } from "./identity.ts";

const BLOCK = 512;
const LIST_TIMEOUT_MS = 60_000;
/** Exit 0 for an archive with an empty /tmp: the directory itself, and nothing in it. */
const emptyTmp = `tar --list --file="$1" | awk '/^\\.\\/tmp\\/$/ { there = 1 } /^\\.\\/tmp\\/./ { full = 1 } END { exit !(there && !full) }'`;

/** `directory` holds what runsc fscheckpoint wrote: one archive of all names, ended by two blocks of zeros, of which one is enough. */
export async function keepEmptyTmp(spawner: Spawner, directory: string): Promise<void> {
  const archive = join(directory, "multitar.img");
  const { code } = await spawner.run(["/bin/sh", "-c", emptyTmp, "sh", archive], { timeoutMs: LIST_TIMEOUT_MS });
  if (code !== 0) return;
  const file = await open(archive, "r+");
  try {
    const { size } = await file.stat();
    const end = Buffer.alloc(2 * BLOCK);
    await file.read(end, 0, end.length, size - end.length);
    // Where runsc ends it in another way, its own rule stands.
    if (size % BLOCK === 0 && end.every((byte) => byte === 0))
      await file.write(directoryEntry("tmp/.X11-unix", 0o1777, Date.now()), 0, BLOCK, size - end.length);
  } finally {
    await file.close();
  }
}
