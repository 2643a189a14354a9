// Keeps /tmp in a file system checkpoint even when it is empty: at the next start runsc would mount a tmpfs over an empty /tmp, whose files the
// following checkpoint would lose.
import { open } from "node:fs/promises";
import { join } from "node:path";
import type { Spawner } from "@svc/kit/spawn.ts";
import { directoryEntry } from "./identity.ts";

const BLOCK = 512;
const LIST_TIMEOUT_MS = 60_000;
/** Exits 0 for an archive whose /tmp is present and empty. */
const emptyTmp = `tar --list --file="$1" | awk '/^\\.\\/tmp\\/$/ { there = 1 } /^\\.\\/tmp\\/./ { full = 1 } END { exit !(there && !full) }'`;

/** `directory` holds the output of runsc fscheckpoint: one archive of all names, ended by two zero blocks, of which one suffices. */
export async function keepEmptyTmp(spawner: Spawner, directory: string): Promise<void> {
  const archive = join(directory, "multitar.img");
  const { code } = await spawner.run(["/bin/sh", "-c", emptyTmp, "sh", archive], { timeoutMs: LIST_TIMEOUT_MS });
  if (code !== 0) return;
  const file = await open(archive, "r+");
  try {
    const { size } = await file.stat();
    const end = Buffer.alloc(2 * BLOCK);
    await file.read(end, 0, end.length, size - end.length);
    // If runsc ever ends the archive differently, this leaves it unchanged.
    if (size % BLOCK === 0 && end.every((byte) => byte === 0))
      await file.write(directoryEntry("tmp/.X11-unix", 0o1777, Date.now()), 0, BLOCK, size - end.length);
  } finally {
    await file.close();
  }
}
