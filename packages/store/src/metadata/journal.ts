// Records on disk: one SQLite file; the changes of one turn of the loop are one transaction.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { fail } from "@svc/contract/failures.ts";
import type { Journal, Records } from "./records.ts";

type Change = { key: string; value: Buffer | undefined; leaseMs: number | undefined };

export type OpenJournal = Journal & { restore(records: Records): number; close(): void };

/** @throws SETTING_INVALID when the folder or the file cannot be used. */
export function openJournal(home: string): OpenJournal {
  const folder = join(home, "metadata");
  const file = join(folder, "records.db");
  const database = openDatabase(folder, file);
  const insert = database.prepare(
    "INSERT INTO records (key, value, lease_ms) VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value, lease_ms = excluded.lease_ms",
  );
  const remove = database.prepare("DELETE FROM records WHERE key = ?");
  let changes: Change[] = [];
  let waiting: ((error?: Error) => void)[] = [];
  let scheduled = false;

  function flush(): void {
    scheduled = false;
    const batch = changes;
    const callers = waiting;
    changes = [];
    waiting = [];
    let problem: Error | undefined;
    try {
      if (batch.length > 0) write(batch);
    } catch (error) {
      problem = error as Error;
      if (database.isTransaction) database.exec("ROLLBACK");
    }
    for (const done of callers) done(problem);
  }

  function write(batch: readonly Change[]): void {
    database.exec("BEGIN");
    for (const { key, value, leaseMs } of batch) {
      if (value === undefined) remove.run(key);
      else insert.run(key, value, leaseMs ?? null);
    }
    database.exec("COMMIT");
  }

  function schedule(): void {
    if (scheduled) return;
    scheduled = true;
    setImmediate(flush);
  }

  return {
    put(key, value, leaseMs) {
      changes.push({ key, value, leaseMs });
      schedule();
    },
    delete(key) {
      changes.push({ key, value: undefined, leaseMs: undefined });
      schedule();
    },
    whenSafe(done) {
      // Nothing to write: nothing to wait for.
      if (changes.length === 0) {
        done();
        return;
      }
      waiting.push(done);
      schedule();
    },
    restore(records) {
      let count = 0;
      for (const row of database.prepare("SELECT key, value, lease_ms FROM records").iterate() as Iterable<{
        key: string;
        value: Uint8Array;
        lease_ms: number | null;
      }>) {
        records.load(row.key, Buffer.from(row.value), row.lease_ms ?? undefined);
        count++;
      }
      return count;
    },
    close() {
      flush();
      database.close();
    },
  };
}

function openDatabase(folder: string, file: string): DatabaseSync {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const database = new DatabaseSync(file);
    // FULL: what was answered with 200 survives a power cut.
    database.exec("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
    database.exec("CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, value BLOB NOT NULL, lease_ms INTEGER) WITHOUT ROWID");
    return database;
  } catch (error) {
    return fail("SETTING_INVALID", `the records cannot be kept in ${file}: ${(error as Error).message}; is another metadata server using this home?`, {
      cause: error,
    });
  }
}
