// The parts of a backup that a whole deployment shares: etcd's records, and the objects in object storage.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { clusterKeys } from "@svc/contract/cluster-records.ts";
import { fail } from "@svc/contract/failures.ts";
import type { Etcd } from "@svc/kit/etcd/client.ts";
import { isAbsent } from "@svc/kit/etcd/transaction.ts";
import type { Objects } from "@svc/kit/objects/objects.ts";
import { z } from "zod";
import { CHUNKS, COLLECTING, INTENTS } from "../snapshot-transfer/chunk-store.ts";
import { type Archive, type CopiedObject, copyKey, readArchive, readCopy, storeArchive } from "./archive.ts";
import { tarOf, untar } from "./tar-stream.ts";

export const ETCD_ARCHIVE = "etcd";
const RECORDS = "records.jsonl";
const MAX_OBJECT_BYTES = 2 ** 30;
const COPIES_AT_ONCE = 4;

const recordShape = z.tuple([z.string(), z.string()]);

/** The deployment's keys in etcd; `store` is the prefix of the store's masters. */
export type EtcdScope = { readonly etcd: Etcd; readonly name: string; readonly store: string };

/** Stores every record that outlives its writer; those under a lease only say what runs now. */
export async function storeEtcd(
  { etcd, name, store }: EtcdScope,
  objects: Objects,
  folder: string,
): Promise<{ readonly archive: Archive; readonly records: number }> {
  const own = await etcd.list(`svc/${name}/`);
  const ofStore = await etcd.list(store);
  const kept = [...own.entries, ...ofStore.entries].filter(({ leaseID }) => leaseID === undefined).map(({ key, value }) => JSON.stringify([key, value]));
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  writeFileSync(join(folder, RECORDS), kept.map((line) => `${line}\n`).join(""), { mode: 0o600 });
  return { archive: await storeArchive(objects, ETCD_ARCHIVE, tarOf(folder)), records: kept.length };
}

/**
 * Writes the records into an etcd that has none of this deployment, the record of the deployment last: a restore that was killed goes on.
 * Returns the number written, or undefined where the deployment is there already and was left alone.
 */
export async function restoreEtcd({ etcd, name }: EtcdScope, objects: Objects, archive: Archive, folder: string): Promise<number | undefined> {
  const last = clusterKeys(name).deployment;
  if ((await etcd.get(last)) !== undefined) return undefined;
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  try {
    await untar(folder, readArchive(objects, archive));
    const lines = readFileSync(join(folder, RECORDS), "utf8").split("\n");
    const records = lines.filter((line) => line !== "").map((line) => recordShape.parse(JSON.parse(line)));
    if (!records.some(([key]) => key === last))
      fail("BACKUP_DAMAGED", `the backup is of another deployment: it has no record ${last}; name its deployment with --cluster.name`);
    for (const [key, value] of records.toSorted(([a], [b]) => Number(a === last) - Number(b === last)))
      await etcd.transact({ if: [isAbsent(key)], do: [{ put: key, value }] });
    return records.length;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/**
 * Copies what object storage has. Called twice: before the records are read for what names chunks, and after for the chunks, which are kept
 * for `objects.collect_grace_seconds` after the last of their names is gone.
 */
export async function copyObjects(from: Objects, to: Objects, isOfChunks: boolean): Promise<CopiedObject[]> {
  const keys: string[] = [];
  // Notes of what is under way end with their writers.
  const isPassing = (key: string) => key.startsWith(INTENTS) || key.startsWith(COLLECTING);
  for await (const { key } of from.list("")) if (!isPassing(key) && key.startsWith(CHUNKS) === isOfChunks) keys.push(key);
  const copied: CopiedObject[] = [];
  await each(keys, async (key) => {
    const body = await from.get(key, MAX_OBJECT_BYTES);
    // It was deleted since the list was read.
    if (body === undefined) return;
    const sha256 = createHash("sha256").update(body).digest("hex");
    await to.put(copyKey(key), body, sha256);
    copied.push({ key, sizeBytes: body.length, sha256 });
  });
  return copied;
}

/** Puts back the objects that are missing. @throws BACKUP_DAMAGED. Returns how many were missing. */
export async function restoreObjects(from: Objects, to: Objects, copied: readonly CopiedObject[]): Promise<number> {
  let restored = 0;
  await each(copied, async (object) => {
    if ((await to.head(object.key))?.sizeBytes === object.sizeBytes) return;
    await to.put(object.key, await readCopy(from, object), object.sha256);
    restored++;
  });
  return restored;
}

async function each<T>(all: readonly T[], work: (one: T) => Promise<void>): Promise<void> {
  let next = 0;
  const worker = async () => {
    for (let at = next++; at < all.length; at = next++) await work(all[at] as T);
  };
  await Promise.all(Array.from({ length: Math.min(COPIES_AT_ONCE, all.length) }, worker));
}
