// The admin server's records in a file of its home.
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { openStore } from "@svc/kit/database.ts";
import { type Entry, MAX_LISTED, type Records } from "./records.ts";

const schema = {
  version: 1,
  tables: `CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, value TEXT NOT NULL, version INTEGER NOT NULL) STRICT, WITHOUT ROWID;
           CREATE TABLE IF NOT EXISTS counter (version INTEGER NOT NULL) STRICT`,
};

/** @throws HOST_UNSUITABLE if another server holds the file, or the file is damaged. */
export function openEmbedded(folder: string): Records {
  const store = openStore(join(folder, "admin.db"), {
    schema,
    durability: "disk",
    advice: "with the admin server stopped, set the file aside: migrations are lost with it, and devices must be created again",
  });
  const { db } = store;
  if (db.prepare("SELECT version FROM counter").get() === undefined) store.write(() => db.exec("INSERT INTO counter VALUES (0)"));
  const read = db.prepare("SELECT key, value, version FROM records WHERE key = ?");
  const range = db.prepare("SELECT key, value, version FROM records WHERE substr(key, 1, length(?1)) = ?1 ORDER BY key LIMIT ?2");
  const next = db.prepare("UPDATE counter SET version = version + 1 RETURNING version");
  const write = db.prepare("INSERT INTO records VALUES (?1, ?2, ?3) ON CONFLICT (key) DO UPDATE SET value = ?2, version = ?3");
  const erase = db.prepare("DELETE FROM records WHERE key = ?");
  for (const each of [read, range, next]) each.setReadBigInts(true);
  const entryOf = (row: Record<string, unknown> | undefined) => (row === undefined ? undefined : ({ ...row } as Entry));
  const holds = (key: string, expected: bigint) => (entryOf(read.get(key))?.version ?? 0n) === expected;

  return {
    get: async (key) => entryOf(read.get(key)),
    async list(prefix) {
      const rows = range.all(prefix, MAX_LISTED + 1);
      if (rows.length > MAX_LISTED) fail("CAPACITY_EXHAUSTED", `there are more than ${MAX_LISTED} records below ${prefix}`);
      return rows.map((row) => ({ ...row }) as unknown as Entry);
    },
    async put(key, value, expected) {
      return store.write(() => {
        if (!holds(key, expected)) return undefined;
        const { version } = next.get() as { version: bigint };
        write.run(key, value, version);
        return version;
      });
    },
    async delete(key, expected) {
      return store.settle(() => {
        if (expected === 0n || !holds(key, expected)) return false;
        erase.run(key);
        return true;
      });
    },
    close: async () => store.close(),
  };
}
