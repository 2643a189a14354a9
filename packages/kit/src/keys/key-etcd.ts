// The named keys of a deployment in etcd: every gateway and node follows them.
import { clusterKeys } from "@svc/contract/cluster-records.ts";
import { fail } from "@svc/contract/failures.ts";
import { type KeyRecord, keyRecord } from "@svc/contract/keys.ts";
import { type TenantRecord, tenantRecord } from "@svc/contract/tenants.ts";
import type { Etcd } from "../etcd/client.ts";
import { isAbsent } from "../etcd/transaction.ts";
import type { Watch } from "../etcd/watch.ts";
import type { KeyValue } from "../etcd/wire.ts";
import type { Log } from "../log.ts";
import type { KeyStore } from "./keys.ts";

export type KeyEtcdOptions = { readonly etcd: Etcd; readonly name: string; readonly log: Log };

export function openKeyEtcd({ etcd, name, log }: KeyEtcdOptions): KeyStore {
  const keys = clusterKeys(name);
  const watches: Watch[] = [];

  function parsed({ key, value }: KeyValue): KeyRecord[] {
    try {
      return [keyRecord.parse(JSON.parse(value))];
    } catch (error) {
      log.error({ err: error, key }, "the record of a named key in etcd cannot be read: the key is refused");
      return [];
    }
  }
  function tenantOf({ key, value }: KeyValue): TenantRecord[] {
    try {
      return [tenantRecord.parse(JSON.parse(value))];
    } catch (error) {
      log.error({ err: error, key }, "the quotas of a tenant in etcd cannot be read: the tenant keeps those that this server knew");
      return [];
    }
  }
  const idOf = (key: string, prefix: string) => key.slice(prefix.length);

  /** @throws INVALID_REQUEST if another gateway changed the key meanwhile. */
  async function write(id: string, previous: KeyRecord | undefined, value: string | undefined): Promise<void> {
    const key = keys.apiKey(id);
    const condition = previous === undefined ? isAbsent(key) : { key, value: JSON.stringify(previous) };
    const { succeeded } = await etcd.transact({ if: [condition], do: [value === undefined ? { delete: key } : { put: key, value }] });
    if (!succeeded) fail("INVALID_REQUEST", `key '${id}' was changed at the same moment by another request: look at it, and try again`);
  }

  return {
    open(changed) {
      watches.push(
        etcd.watch(keys.apiKeys, {
          onAll: (entries) => changed.all(entries.flatMap(parsed)),
          onEvents(events) {
            for (const event of events) {
              if (event.type === "delete") changed.gone(idOf(event.key, keys.apiKeys));
              else for (const record of parsed(event.entry)) changed.one(record);
            }
          },
          onInterrupted: (reason) => log.warn({ reason }, "etcd does not answer: named keys that are created or revoked meanwhile are not seen"),
        }),
        etcd.watch(keys.tenants, {
          onAll: (entries) => changed.tenants(entries.flatMap(tenantOf)),
          onEvents(events) {
            for (const event of events) if (event.type === "put") for (const record of tenantOf(event.entry)) changed.tenant(record);
          },
        }),
        etcd.watch(keys.apiKeyUses, {
          onAll(entries) {
            for (const { key, value } of entries) changed.used(idOf(key, keys.apiKeyUses), Number(value));
          },
          onEvents(events) {
            for (const event of events) if (event.type === "put") changed.used(idOf(event.key, keys.apiKeyUses), Number(event.entry.value));
          },
        }),
      );
    },
    put: (record, previous) => write(record.id, previous, JSON.stringify(record)),
    async remove(record) {
      await write(record.id, record, undefined);
      await etcd.delete(keys.apiKeyUse(record.id));
    },
    async putTenant(record) {
      await etcd.put(keys.tenant(record.tenant), JSON.stringify(record));
    },
    async putUse(id, atMs) {
      await etcd.put(keys.apiKeyUse(id), String(atMs));
    },
    async close() {
      await Promise.all(watches.map((watch) => watch.close()));
    },
  };
}
