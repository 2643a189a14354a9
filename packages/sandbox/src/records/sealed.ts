// Sealed files of checkpoints: identified by size and modification time, so that gigabytes need not be read to verify them.
//
// Why that suffices: no process has a sealed file open for writing (the sandbox's kernel maps it read-only), and any other write would
// change its time. Only a power cut before the bytes reached the disk remains. Therefore a marker file records that they did; without
// it a checkpoint is accepted only in the boot that wrote it.
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

/** The marker file in a checkpoint's folder, next to its manifest. */
const markOf = (directory: string) => join(directory, "on-disk");

export async function sealedAs(path: string): Promise<Sealed & { readonly sizeBytes: number }> {
  const { mtimeNs, blocks, size } = await stat(path, { bigint: true });
  return { changedNs: String(mtimeNs), heldBytes: Number(blocks) * BLOCK_BYTES, sizeBytes: Number(size) };
}

/** Refuses a checkpoint, with advice for the operator. @throws SNAPSHOT_DAMAGED, always. */
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

/** Some archives keep only whole seconds, so a time with zero nanoseconds matches its second. */
function isSameTime(found: string, expected: string): boolean {
  return found === expected || (found.endsWith(WHOLE) && found.slice(0, -WHOLE.length) === expected.slice(0, -WHOLE.length));
}

/** Marks a checkpoint as synced; the caller has synced all of its files before. */
export async function markOnDisk(directory: string): Promise<void> {
  await (await open(markOf(directory), "w", 0o600)).close();
  await syncAll([markOf(directory), directory]);
}

export async function isOnDisk(directory: string): Promise<boolean> {
  return stat(markOf(directory)).then(
    () => true,
    () => false,
  );
}

/** @throws SNAPSHOT_DAMAGED when the checkpoint may be torn: it was written in another boot and has no marker that it reached the disk. */
export async function checkReached(checkpointID: string, directory: string, writtenIn: string | undefined): Promise<void> {
  if (writtenIn === bootID() || (await isOnDisk(directory))) return;
  failDamaged(checkpointID, "may be torn: the machine went down before its files were known to be on the disk");
}
