// Lists a device's bucket when its owner starts: complete files, what has to be quarantined first, and the next number.
import type { Objects } from "@svc/kit/objects/objects.ts";
import { fileOf, type Names, nextOf } from "./bucket-names.ts";
import { type Entry, moveObject } from "./bucket-objects.ts";

export type Listed = { readonly entries: Map<number, Entry>; readonly next: number; readonly reservations: readonly string[] };

type Seen = { readonly file: number; readonly epoch: number; endBytes: number | undefined; readonly parts: Set<number>; readonly names: string[] };

/** Quarantines files that are incomplete or were never accepted by the master. */
export async function listBucket(objects: Objects, names: Names): Promise<Listed> {
  const seen = new Map<string, Seen>();
  for await (const { key, sizeBytes } of objects.list(names.objects)) {
    const name = key.slice(names.objects.length);
    const known = fileOf(name);
    if (known === undefined) continue;
    const { file, epoch, part } = known;
    const id = name.split(".")[0] as string;
    const each = seen.get(id) ?? { file, epoch, endBytes: undefined, parts: new Set(), names: [] };
    seen.set(id, each);
    each.names.push(name);
    if (part === 0) each.endBytes = sizeBytes;
    else each.parts.add(part);
  }
  const quarantine = async (id: string) => {
    for (const name of seen.get(id)?.names ?? []) await moveObject(objects, `${names.objects}${name}`, `${names.quarantine.pending}${name}`);
    seen.delete(id);
  };
  for await (const { key } of objects.list(names.pending)) {
    await quarantine(key.slice(names.pending.length));
    await objects.delete(key);
  }
  const entries = new Map<number, Entry>();
  let next = 1;
  for (const [id, { file, epoch, endBytes, parts }] of [...seen].sort(([, one], [, other]) => other.epoch - one.epoch)) {
    next = Math.max(next, file + 1);
    // If two files have the same number, the earlier start wrote its file after it had lost the device.
    if (endBytes === undefined || entries.has(file)) await quarantine(id);
    else entries.set(file, { epoch, endBytes, parts: parts.size === 0 ? 0 : Math.max(...parts) });
  }
  const reservations: string[] = [];
  for await (const { key } of objects.list(names.numbers)) {
    next = Math.max(next, nextOf(key.slice(names.numbers.length)) ?? 0);
    reservations.push(key);
  }
  return { entries, next, reservations };
}
