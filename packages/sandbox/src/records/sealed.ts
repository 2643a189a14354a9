// Sealed files of checkpoints: known by their size and the time of their last change, so that no gigabyte is read to know them again.
//
// Why this is never silently wrong: nobody holds one open for writing (the kernel inside maps it read-only), and whoever wrote to it
// all the same would change its time. What is left is a power cut before its bytes were on the disk; so a mark says that they are,
// and without it a checkpoint is believed in the boot alone that wrote it.
import { open, stat } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { syncAll } from "@svc/kit/sync.ts";
import { z } from "zod";
import { SEALED } from "../runtime/checkpoint.ts";
import { bootID } from "./clock.ts";

const BLOCK_BYTES = 512;
const WHOLE = "0".repeat(9);

export const sealedShape = z.object({ changedNs: z.string().regex(/^\d+$/), heldBytes: z.number().int() });
export type Sealed = z.output<typeof sealedShape>;

export const isSealed = (name: string) => name.startsWith(SEALED);

/** Below a checkpoint's folder, beside its manifest. */
const markOf = (place: string) => join(place, "on-disk");

export async function sealedAs(path: string): Promise<Sealed & { readonly sizeBytes: number }> {
  const { mtimeNs, blocks, size } = await stat(path, { bigint: true });
  return { changedNs: String(mtimeNs), heldBytes: Number(blocks) * BLOCK_BYTES, sizeBytes: Number(size) };
}

/** Refuses a checkpoint, and says what is left to do. @throws SNAPSHOT_DAMAGED, always. */
export function failDamaged(checkpointID: string, what: string, cause?: unknown): never {
  const advice = `put snapshots/${checkpointID} back from a copy of the home, or delete what needs it`;
  return fail("SNAPSHOT_DAMAGED", `checkpoint ${checkpointID} ${what}; ${advice}`, { cause });
}

/** @throws SNAPSHOT_DAMAGED. */
export async function checkSealed(checkpointID: string, path: string, expected: Sealed & { readonly sizeBytes: number }): Promise<void> {
  // I30
  const found = await sealedAs(path).catch((cause: unknown) => failDamaged(checkpointID, `has a file that cannot be read: ${(cause as Error).message}`, cause));
  if (isSameTime(found.changedNs, expected.changedNs) && found.sizeBytes === expected.sizeBytes) return;
  failDamaged(
    checkpointID,
    `has another file than was kept, ${path}: it has ${found.sizeBytes} bytes, last changed at ${found.changedNs} ns, expected ${expected.sizeBytes} and ${expected.changedNs}; a copy of a home must keep times, as cp -a, rsync -a and tar do`,
  );
}

/** An archive may keep whole seconds alone. */
function isSameTime(found: string, expected: string): boolean {
  return found === expected || (found.endsWith(WHOLE) && found.slice(0, -WHOLE.length) === expected.slice(0, -WHOLE.length));
}

/** All of the checkpoint in `place` has been synced before this is called. */
export async function markOnDisk(place: string): Promise<void> {
  await (await open(markOf(place), "w", 0o600)).close();
  await syncAll([markOf(place), place]);
}

export async function isOnDisk(place: string): Promise<boolean> {
  return stat(markOf(place)).then(
    () => true,
    () => false,
  );
}

/** @throws SNAPSHOT_DAMAGED when it may be torn: it was written in another boot, and never known to be on the disk. */
export async function checkReached(checkpointID: string, place: string, writtenIn: string | undefined): Promise<void> {
  if (writtenIn === bootID() || (await isOnDisk(place))) return;
  failDamaged(checkpointID, "may be torn: the machine went down before its files were known to be on the disk");
}
