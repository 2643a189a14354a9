// The files that a gVisor sandbox wrote, as a stack of layers: each checkpoint seals the newest layer, and the sandbox
// continues in an empty one above it.
//
// A sealed layer is never written again: sandboxes and checkpoints share it, each by its own hard link.
import { readdirSync, statSync } from "node:fs";
import { link, readdir, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { SEALED } from "./checkpoint.ts";
import { COPY_TIMEOUT_MS } from "./layer-archive.ts";

// DIRECTORY/upper/runsc-filestore-NNNNNN   in a sandbox's directory, oldest first; the sandbox writes the newest
// DIRECTORY/upper/merged-NNNNNN            during a start that copies these layers into the one that the sandbox will write
// sealed-NNNNNN.img                        in a checkpoint

const BLOCK_BYTES = 512;
const DIGITS = 6;
/** Copying this size takes 10 ms. */
const SMALL_BYTES = 16 * 2 ** 20;
const MAX_LAYERS = 8;
const UPPER = "upper";
const MERGED = "merged-";
const IN_SANDBOX = /^runsc-filestore-\d{6}$/;
const IN_CHECKPOINT = new RegExp(`^${SEALED}\\d{6}\\.img$`);
const numbered = (number: number) => String(number).padStart(DIGITS, "0");

/** Returns the next file to write, or undefined for a sandbox of an earlier version, whose checkpoints hold everything that it wrote. */
export async function nextLayer(directory: string): Promise<string | undefined> {
  const names = await layersIn(join(directory, UPPER), IN_SANDBOX);
  const newest = names.at(-1);
  if (newest === undefined) return undefined;
  return join(directory, UPPER, `runsc-filestore-${numbered(Number(newest.slice(-DIGITS)) + 1)}`);
}

/**
 * Links the layers below `next` into a checkpoint. `end` is the offset where the layers under the checkpoint end.
 * @throws CHECKPOINT_FAILED if the layers end at another offset.
 */
export async function keepLayers(spawner: Spawner, directory: string, next: string, end: number, into: string): Promise<void> {
  const folder = join(directory, UPPER);
  let begin = 0;
  let number = 0;
  for (const name of await layersIn(folder, IN_SANDBOX)) {
    const path = join(folder, name);
    if (path >= next) break;
    const { size } = await stat(path);
    // A layer without new bytes was never written: its checkpoint failed, or the sandbox wrote nothing since.
    if (size <= begin) continue;
    await linkOrCopy(spawner, path, join(into, `${SEALED}${numbered(number++)}.img`));
    begin = size;
  }
  if (begin !== end) fail("CHECKPOINT_FAILED", `the checkpoint lies on layers up to ${end}, and there are some up to ${begin}`);
}

/** Links a checkpoint's layers below the one that the sandbox will write. Small new layers are merged into that one, so that the stack stays short. */
export async function stackLayers(spawner: Spawner, checkpoint: string, directory: string): Promise<void> {
  const names = await layersIn(checkpoint, IN_CHECKPOINT);
  const sizes = await Promise.all(names.map(async (name) => (await stat(join(checkpoint, name))).blocks * BLOCK_BYTES));
  const kept = keptLayers(sizes);
  // A precreated sandbox already has the file that it will write.
  const [own] = await layersIn(join(directory, UPPER), IN_SANDBOX);
  if (own !== undefined) await rename(join(directory, UPPER, own), join(directory, UPPER, `runsc-filestore-${numbered(kept)}`));
  const nameOf = (number: number) => (number < kept ? `runsc-filestore-${numbered(number)}` : `${MERGED}${numbered(number)}`);
  await Promise.all(names.map((name, number) => linkOrCopy(spawner, join(checkpoint, name), join(directory, UPPER, nameOf(number)))));
}

/** Removes the merged layers; called once the sandbox runs. */
export async function dropMerged(directory: string): Promise<void> {
  const names = await layersIn(join(directory, UPPER), /^merged-/);
  await Promise.all(names.map((name) => rm(join(directory, UPPER, name), { force: true })));
}

/**
 * Returns how many of the layers, oldest first, stay as they are. The others are copied: small ones always, and larger ones only if at least as
 * much lies above them, so a byte is copied again only when the data above it has doubled.
 */
export function keptLayers(sizes: readonly number[]): number {
  let kept = sizes.length;
  let copied = 0;
  const above = (number: number) => sizes.slice(number + 1).reduce((sum, bytes) => sum + bytes, 0);
  for (let number = sizes.length - 1; number >= 0; number--) {
    const bytes = sizes[number] as number;
    if (bytes > SMALL_BYTES && bytes > copied) break;
    copied += bytes;
    kept = number;
  }
  if (kept <= MAX_LAYERS) return kept;
  // If too many layers remain, the copy starts at the layer that is smallest relative to the data above it.
  const share = (number: number) => (sizes[number] as number) / above(number);
  let best = sizes.length - 2;
  for (let number = best; number >= 0; number--) if (share(number) < share(best)) best = number;
  return best;
}

/** Returns the bytes on disk of a sandbox's layers, or 0 if it has no named ones. It is synchronous since it never blocks and takes microseconds. */
export function layerBytes(directory: string): number {
  const folder = join(directory, UPPER);
  try {
    const names = readdirSync(folder).filter((name) => IN_SANDBOX.test(name));
    return names.reduce((sum, name) => sum + statSync(join(folder, name)).blocks * BLOCK_BYTES, 0);
  } catch {
    return 0;
  }
}

async function layersIn(folder: string, pattern: RegExp): Promise<string[]> {
  return (await readdir(folder).catch(() => [])).filter((name) => pattern.test(name)).sort();
}

/** Links a file, or copies it where a home's folders lie on several file systems. */
export async function linkOrCopy(spawner: Spawner, path: string, as: string): Promise<void> {
  await link(path, as).catch(async (error: NodeJS.ErrnoException) => {
    if (error.code !== "EXDEV" && error.code !== "EMLINK") throw error;
    // A layer is mostly holes.
    await spawner.check(["cp", "--reflink=auto", "--sparse=auto", "--", path, as], { timeoutMs: COPY_TIMEOUT_MS });
  });
}
