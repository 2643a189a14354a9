// SQLite files that one process holds: readable by their owner alone, written ahead, whole after kill -9.
import { chmodSync, closeSync, openSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { fail } from "@svc/contract/failures.ts";

const LOCK_WAIT_MS = 2_000;

/**
 * Opens (or makes) the file, mode 0600, and holds it. WAL with NORMAL: a commit is in the page cache when it returns, which a
 * killed process does not take along; a power cut may cost the last ones.
 * @throws HOST_UNSUITABLE when another process holds it, or it is damaged; `advice` says what may be done about the damage.
 */
export function openExclusive(path: string, advice = ""): DatabaseSync {
  try {
    closeSync(openSync(path, "a", 0o600));
    chmodSync(path, 0o600);
    const db = new DatabaseSync(path, { timeout: LOCK_WAIT_MS });
    db.exec("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE; COMMIT;");
    return db;
  } catch (cause) {
    const { message } = cause as Error;
    if (message.includes("locked")) fail("HOST_UNSUITABLE", `${path} is held by another node; stop that one, or give this one its own --home`, { cause });
    return fail("HOST_UNSUITABLE", `${path} cannot be opened: ${message}${advice === "" ? "" : `; ${advice}`}`, { cause });
  }
}

/** Runs `steps` in one transaction: all of them, or none. */
export function inTransaction<T>(db: DatabaseSync, steps: () => T): T {
  db.exec("BEGIN IMMEDIATE");
  try {
    const result = steps();
    db.exec("COMMIT");
    return result;
  } catch (error) {
    db.exec("ROLLBACK");
    throw error;
  }
}
