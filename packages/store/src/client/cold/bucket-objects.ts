// Maps a file of a bucket to the objects that it consists of.
import type { Objects } from "@svc/kit/objects/objects.ts";
import type { LocalMemory } from "../memory.ts";
import type { BucketClaim } from "./bucket-claim.ts";
import { fileName, type Names, PART_BYTES } from "./bucket-names.ts";
import type { BucketSpool } from "./bucket-spool.ts";
import { MOST_BEHIND } from "./bucket-tail.ts";

export type BucketParts = {
  readonly objects: Objects;
  readonly names: Names;
  readonly claim: BucketClaim;
  readonly spool: BucketSpool;
  readonly memory: LocalMemory;
};

/** `endBytes` is the size of the object with the file's end; `parts` is the number of objects before it. */
export type Entry = { readonly epoch: number; readonly endBytes: number; readonly parts: number };

/** Lists the end first, so that a deletion begins with it. */
export const namesOfFile = (file: number, { epoch, parts }: Entry): string[] => [
  fileName(file, epoch),
  ...Array.from({ length: parts }, (_, at) => `${fileName(file, epoch)}.${at + 1}`),
];

/** Copies the object to its new name before the old one is deleted; an object that does not exist counts as moved. */
export async function moveObject(objects: Objects, from: string, to: string): Promise<void> {
  const bytes = await objects.get(from, PART_BYTES + MOST_BEHIND);
  if (bytes === undefined) return;
  await objects.put(to, bytes);
  await objects.delete(from);
}
