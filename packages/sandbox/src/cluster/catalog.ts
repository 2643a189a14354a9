// What etcd lists of a deployment's snapshots and templates in object storage, so that lists have them when their node does not answer.
import type { clusterKeys } from "@svc/contract/cluster-records.ts";
import type { Etcd } from "@svc/kit/etcd/client.ts";
import type { Catalog } from "../snapshot-transfer/exports.ts";

/** A record is written where it differs from what etcd had when it was first needed, or from what this process wrote since. */
export function openCatalog(etcd: Pick<Etcd, "list" | "put" | "delete">, keys: ReturnType<typeof clusterKeys>, nodeID: string): Catalog {
  const known = new Map<string, string>();
  let reading: Promise<void> | undefined;

  async function readAll(): Promise<void> {
    for (const prefix of [keys.snapshots, keys.templates]) for (const { key, value } of (await etcd.list(prefix)).entries) known.set(key, value);
  }
  /** Once; again after an attempt that failed. */
  function read(): Promise<void> {
    reading ??= readAll().catch((error: unknown) => {
      reading = undefined;
      throw error;
    });
    return reading;
  }

  return {
    async put(kind, id, listed) {
      await read();
      const key = keys[kind] + id;
      const value = JSON.stringify({ version: 1, nodeID, listed });
      if (known.get(key) === value) return;
      // Before it is written: from then on its outcome may be unknown.
      known.delete(key);
      await etcd.put(key, value);
      known.set(key, value);
    },
    async drop(kind, id) {
      const key = keys[kind] + id;
      await etcd.delete(key);
      known.delete(key);
    },
  };
}
