// Uploads a file from the local copy to its bucket: its parts, then its end, which makes it exist.
import { open } from "node:fs/promises";
import { fail } from "@svc/contract/failures.ts";
import { fileName, PART_BYTES } from "./bucket-names.ts";
import type { BucketParts, Entry } from "./bucket-objects.ts";

type Sent = { readonly file: number; readonly sizeBytes: number; readonly isProven: boolean };

/**
 * `undo` removes what may exist of the file after a failure.
 * @throws STORE_CONFLICT where a later start owns the device; OBJECTS_UNAVAILABLE, DISK_FULL.
 */
export async function uploadFile(
  { objects, names, claim, spool }: BucketParts,
  { file, sizeBytes, isProven }: Sent,
  undo: (entry: Entry) => Promise<void>,
): Promise<Entry> {
  await claim.confirm();
  const parts = sizeBytes > PART_BYTES ? Math.ceil(sizeBytes / PART_BYTES) - 1 : 0;
  const name = fileName(file, claim.epoch);
  const from = await open(spool.pathOf(file), "r");
  const entry: Entry = { epoch: claim.epoch, endBytes: (await from.stat()).size - parts * PART_BYTES, parts };
  try {
    const read = async (at: number, length: number) => {
      const { buffer, bytesRead } = await from.read(Buffer.allocUnsafe(length), 0, length, at);
      return bytesRead === length ? buffer : fail("INTERNAL", `${spool.pathOf(file)} became shorter while it was read`);
    };
    if (parts > 0 || !isProven) await objects.put(`${names.pending}${name}`, Buffer.alloc(0));
    for (let part = 1; part <= parts; part++) await objects.put(`${names.objects}${name}.${part}`, await read((part - 1) * PART_BYTES, PART_BYTES));
    await objects.put(`${names.objects}${name}`, await read(parts * PART_BYTES, entry.endBytes));
    if (parts > 0 && isProven) await objects.delete(`${names.pending}${name}`);
    return entry;
  } catch (error) {
    // The server may have stored the end although the request failed.
    await undo(entry);
    throw error;
  } finally {
    await from.close();
  }
}
