// The named keys of one server, as rows of an SQLite file in its home. The file is made with the first key.
import { existsSync } from "node:fs";
import { keyRecord } from "@svc/contract/keys.ts";
import { tenantRecord } from "@svc/contract/tenants.ts";
import { openStore, type Store } from "../database.ts";
import type { KeyStore } from "./keys.ts";

const tables = `
  CREATE TABLE IF NOT EXISTS keys (id TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS tenants (tenant TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS uses (id TEXT PRIMARY KEY, at INTEGER NOT NULL) STRICT;
`;
const ADVICE = "bring it back from a backup; without the file the server starts with no named keys, and the deployment's own key stays valid";

/** `open` @throws HOST_UNSUITABLE if the file is damaged: a server that skipped keys would refuse clients without a word. */
export function openKeyFile(path: string): KeyStore {
  let opened: Store | undefined;
  // A revoked key must stay revoked after a power failure, so each change is synced.
  const store = () => (opened ??= openStore(path, { schema: { version: 1, tables }, durability: "disk", advice: ADVICE }));

  return {
    open(changed) {
      if (!existsSync(path)) return;
      const { db } = store();
      changed.all(
        db
          .prepare("SELECT record FROM keys")
          .all()
          .map((row) => keyRecord.parse(JSON.parse(row["record"] as string))),
      );
      const tenants = db.prepare("SELECT record FROM tenants").all();
      changed.tenants(tenants.map((row) => tenantRecord.parse(JSON.parse(row["record"] as string))));
      for (const row of db.prepare("SELECT id, at FROM uses").all()) changed.used(row["id"] as string, row["at"] as number);
    },
    async put(record) {
      const { db, write } = store();
      const put = db.prepare("INSERT INTO keys VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET record = excluded.record");
      write(() => void put.run(record.id, JSON.stringify(record)));
    },
    async remove({ id }) {
      const { db, settle } = store();
      settle(() => {
        db.prepare("DELETE FROM keys WHERE id = ?").run(id);
        db.prepare("DELETE FROM uses WHERE id = ?").run(id);
      });
    },
    async putTenant(record) {
      const { db, write } = store();
      const put = db.prepare("INSERT INTO tenants VALUES (?, ?) ON CONFLICT (tenant) DO UPDATE SET record = excluded.record");
      write(() => void put.run(record.tenant, JSON.stringify(record)));
    },
    async putUse(id, atMs) {
      const { db, settle } = store();
      settle(() => void db.prepare("INSERT INTO uses VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET at = max(at, excluded.at)").run(id, atMs));
    },
    async close() {
      opened?.close();
    },
  };
}
