// SQLite files that one process opens exclusively: private to their owner, with a write-ahead log, intact after kill -9 and on a full disk.
import { chmodSync, closeSync, openSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { Failure, fail, isDiskFull } from "@svc/contract/failures.ts";
import type { DiskReserve } from "./disk-reserve.ts";

const LOCK_WAIT_MS = 2_000;
/** At this size SQLite moves the log into the file and reuses the log from its start; the log keeps its disk blocks. */
const LOG_PAGES = 512;
const PAGE_BYTES = 4_096;

export const durabilities = ["process", "disk"] as const;
/** Which failure an acknowledged write survives: the end of the process, or also that of the machine. */
export type Durability = (typeof durabilities)[number];

/** The tables of a file and their version; the caller supplies them. */
export type Schema = {
  readonly version: number;
  /** The oldest version that `migrations` can start from, 1 by default; a file of an older version is refused and stays unchanged. */
  readonly oldest?: number;
  /** Runs at each open, so it must change nothing if the tables exist. */
  readonly tables: string;
  /** Migrations by the version that each one produces from the version before; a version that needs none has no entry. */
  readonly migrations?: Readonly<Record<number, (db: DatabaseSync) => void>>;
};

export type StoreOptions = {
  readonly schema: Schema;
  readonly durability?: Durability | undefined;
  readonly reserve?: DiskReserve | undefined;
  /** Ends the message about a damaged file: what the user can do. */
  readonly advice?: string;
};

export type Store = {
  readonly db: DatabaseSync;
  /** Commits all of `steps` or none. @throws DISK_FULL if they do not fit. */
  write<T>(steps: () => T): T;
  /** Like `write`, for steps that end, delete or restore something: they succeed on a full disk too, at the expense of the reserve. */
  settle<T>(steps: () => T): T;
  close(): void;
};

/**
 * Opens or creates the file with mode 0600, locks it, and migrates it to the schema's version in one transaction. With "process" a commit
 * is in the page cache when it returns and survives a killed process; with "disk" it is synced.
 * @throws HOST_UNSUITABLE if another process holds the file, it is damaged, or a version of svc wrote it that is newer, or older than
 * `oldest`; the file is then unchanged. DISK_FULL.
 */
export function openStore(path: string, { schema, durability = "process", reserve, advice = "" }: StoreOptions): Store {
  const db = openExclusive(path, schema, advice);
  // I20
  const synchronous = durability === "disk" ? "FULL" : "NORMAL";
  db.exec(`PRAGMA synchronous = ${synchronous}; PRAGMA wal_autocheckpoint = ${LOG_PAGES}`);

  /** Moves the log into the file and allocates all blocks that the log will ever need, by rewriting page 1 until the log is long enough. */
  function secure(): void {
    try {
      db.exec("PRAGMA wal_checkpoint(RESTART); PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = OFF");
      const rewrite = db.prepare(`PRAGMA user_version = ${versionOf(db)}`);
      for (let size = logBytes(); size < LOG_PAGES * PAGE_BYTES; size += PAGE_BYTES) rewrite.run();
    } catch (error) {
      if (!isDiskFull(error)) throw error;
    } finally {
      db.exec(`PRAGMA wal_autocheckpoint = ${LOG_PAGES}; PRAGMA synchronous = ${synchronous}; PRAGMA wal_checkpoint(RESTART)`);
    }
  }
  const logBytes = () => statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0;

  const attempt = <T>(steps: () => T): T => {
    try {
      return inTransaction(db, steps);
    } catch (error) {
      if (!isDiskFull(error)) throw error;
      throw new Failure("DISK_FULL", `the disk under ${dirname(path)} is full: nothing was changed`, { cause: error });
    }
  };
  function onReserve<T>(steps: () => T, full: unknown): T {
    while (reserve?.lend() === true) {
      secure();
      try {
        return attempt(steps);
      } catch (error) {
        if (!isDiskFull(error)) throw error;
      }
    }
    throw full;
  }
  const store: Store = {
    db,
    write(steps) {
      reserve?.mustBeWhole();
      return attempt(steps);
    },
    settle(steps) {
      try {
        return attempt(steps);
      } catch (error) {
        if (!isDiskFull(error)) throw error;
        return onReserve(steps, error);
      }
    },
    close() {
      db.close();
      // Closing removed the log, so its blocks are free for the reserve, which the next start needs.
      reserve?.refill();
    },
  };
  try {
    store.settle(() => migrate(db, schema));
  } catch (error) {
    store.close();
    throw error;
  }
  return store;
}

function migrate(db: DatabaseSync, { version, tables, migrations = {} }: Schema): void {
  // I32
  const found = versionOf(db);
  db.exec(tables);
  for (let next = found + 1; next <= version; next++) migrations[next]?.(db);
  if (found !== version) db.exec(`PRAGMA user_version = ${version}`);
}

function openExclusive(path: string, { version, oldest = 1 }: Schema, advice: string): DatabaseSync {
  let db: DatabaseSync | undefined;
  try {
    closeSync(openSync(path, "a", 0o600));
    chmodSync(path, 0o600);
    db = new DatabaseSync(path, { timeout: LOCK_WAIT_MS });
    db.exec("PRAGMA locking_mode = EXCLUSIVE");
    const found = versionOf(db);
    if (found > version)
      fail("HOST_UNSUITABLE", `${path} was written by a newer version of svc (its schema is ${found}, the newest known here ${version}); start that version`);
    // 0 is a file without tables.
    if (found !== 0 && found < oldest)
      fail(
        "HOST_UNSUITABLE",
        `${path} was written by a version of svc before 0.1.0 (its schema is ${found}, the oldest known here ${oldest}) and is unchanged; use another --home, or that version`,
      );
    db.exec("PRAGMA journal_mode = WAL; BEGIN IMMEDIATE; COMMIT");
    return db;
  } catch (cause) {
    db?.close();
    const { message, name } = cause as Error;
    if (name === "HOST_UNSUITABLE") throw cause;
    if (isDiskFull(cause)) fail("DISK_FULL", `the disk under ${dirname(path)} is full: ${path} cannot be opened; make room there and try again`, { cause });
    if (message.includes("locked")) fail("HOST_UNSUITABLE", `${path} is in use by another node; stop that one, or give this one its own --home`, { cause });
    return fail("HOST_UNSUITABLE", `${path} cannot be opened: ${message}${advice === "" ? "" : `; ${advice}`}`, { cause });
  }
}

function versionOf(db: DatabaseSync): number {
  return Number(db.prepare("PRAGMA user_version").get()?.["user_version"] ?? 0);
}

/** Runs `steps` in one transaction: all of them take effect, or none. */
function inTransaction<T>(db: DatabaseSync, steps: () => T): T {
  db.exec("BEGIN IMMEDIATE");
  try {
    const result = steps();
    db.exec("COMMIT");
    return result;
  } catch (error) {
    // SQLite rolls back by itself if the disk is full.
    if (db.isTransaction) db.exec("ROLLBACK");
    throw error;
  }
}
