// The catalog in etcd of a deployment's snapshots and templates in object storage, from which lists have them while their node does not answer.
import type { clusterKeys } from "@svc/contract/cluster-records.ts";
import type { Etcd } from "@svc/kit/etcd/client.ts";
import type { Catalog } from "../snapshot-transfer/exports.ts";

/** A record is written only if it differs from the one last read from etcd or written by this process. */
export function openCatalog(etcd: Pick<Etcd, "list" | "put" | "delete">, keys: ReturnType<typeof clusterKeys>, nodeID: string): Catalog {
  const known = new Map<string, string>();
  let reading: Promise<void> | undefined;

  async function readAll(): Promise<void> {
    for (const prefix of [keys.snapshots, keys.templates]) for (const { key, value } of (await etcd.list(prefix)).entries) known.set(key, value);
  }
  /** Reads the catalog once, and again only after a failed attempt. */
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
      // Forgets the value before the write, because the outcome of the write may stay unknown.
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
