// The admin server's records in etcd; a record's version is the revision of its last change.
import { openEtcd } from "@svc/kit/etcd/client.ts";
import type { KeyValue } from "@svc/kit/etcd/wire.ts";
import type { Entry, Records } from "./records.ts";

/** All keys begin with `prefix`; servers with different prefixes are independent. */
export function openEtcdRecords(endpoints: readonly string[], prefix: string): Records {
  const etcd = openEtcd({ endpoints });
  const entryOf = ({ key, value, modRevision }: KeyValue): Entry => ({ key: key.slice(prefix.length), value, version: modRevision });
  return {
    async get(key) {
      const found = await etcd.get(prefix + key);
      return found && entryOf(found);
    },
    async list(below) {
      return (await etcd.list(prefix + below)).entries.map(entryOf);
    },
    async put(key, value, expected) {
      const { succeeded, revision } = await etcd.transact({ if: [{ key: prefix + key, modRevision: expected }], do: [{ put: prefix + key, value }] });
      return succeeded ? revision : undefined;
    },
    async delete(key, expected) {
      return expected !== 0n && (await etcd.transact({ if: [{ key: prefix + key, modRevision: expected }], do: [{ delete: prefix + key }] })).succeeded;
    },
    close: () => etcd.close(),
  };
}
