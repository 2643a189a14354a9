// A file of a bucket as the objects that it is made of.
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

/** `endBytes`: of the object that has the file's end; `parts`: how many precede it. */
export type Entry = { readonly epoch: number; readonly endBytes: number; readonly parts: number };

/** Its end first. */
export const namesOfFile = (file: number, { epoch, parts }: Entry): string[] => [
  fileName(file, epoch),
  ...Array.from({ length: parts }, (_, at) => `${fileName(file, epoch)}.${at + 1}`),
];

/** Under its new name before it goes from the old one; one that is not there is as good as moved. */
export async function moveObject(objects: Objects, from: string, to: string): Promise<void> {
  const bytes = await objects.get(from, PART_BYTES + MOST_BEHIND);
  if (bytes === undefined) return;
  await objects.put(to, bytes);
  await objects.delete(from);
}
