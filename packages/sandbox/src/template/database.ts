// Templates, builds, tags, logs, the step cache and uploads in one SQLite file, used by one node at a time.
import type { DatabaseSync, SQLInputValue, SQLOutputValue } from "node:sqlite";
import { openStore, type StoreOptions } from "@svc/kit/database.ts";

type Row = Record<string, SQLOutputValue>;

export interface Database {
  all(sql: string, ...values: SQLInputValue[]): Row[];
  get(sql: string, ...values: SQLInputValue[]): Row | undefined;
  /** Returns the number of changed rows. @throws DISK_FULL */
  run(sql: string, ...values: SQLInputValue[]): number;
  /** Like `run`, for statements that delete rows: they may use the reserve if the disk is full. */
  remove(sql: string, ...values: SQLInputValue[]): number;
  /** Runs all of `steps` or none. @throws DISK_FULL */
  transaction<T>(steps: () => T): T;
  /** Like `transaction`, for steps that end or delete something: they may use the reserve if the disk is full. */
  settle<T>(steps: () => T): T;
  close(): void;
}

const tables = `
  CREATE TABLE IF NOT EXISTS templates (template_id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, record TEXT NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS builds (build_id TEXT PRIMARY KEY, template_id TEXT NOT NULL, status TEXT NOT NULL, created_at INTEGER NOT NULL, record TEXT NOT NULL) STRICT;
  CREATE INDEX IF NOT EXISTS builds_of ON builds (template_id, created_at);
  CREATE TABLE IF NOT EXISTS tags (template_id TEXT NOT NULL, tag TEXT NOT NULL, build_id TEXT NOT NULL, created_at INTEGER NOT NULL, PRIMARY KEY (template_id, tag)) STRICT;
  CREATE TABLE IF NOT EXISTS logs (build_id TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, level TEXT NOT NULL, step TEXT, message TEXT NOT NULL, PRIMARY KEY (build_id, seq)) STRICT, WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS steps (key TEXT PRIMARY KEY, outcome TEXT NOT NULL, used_at INTEGER NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS images (image_id TEXT PRIMARY KEY, chain TEXT NOT NULL, used_at INTEGER NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS files (hash TEXT PRIMARY KEY, size_bytes INTEGER NOT NULL, used_at INTEGER NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS spawns (template_id TEXT PRIMARY KEY, count INTEGER NOT NULL, last_at INTEGER NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS tag_assignments (seq INTEGER PRIMARY KEY AUTOINCREMENT, assignment_id TEXT NOT NULL, template_id TEXT NOT NULL, tag TEXT NOT NULL, build_id TEXT NOT NULL, assigned_at INTEGER NOT NULL) STRICT;
  CREATE INDEX IF NOT EXISTS tag_assignments_of ON tag_assignments (template_id, tag, seq);
  CREATE INDEX IF NOT EXISTS tag_assignments_to ON tag_assignments (build_id);
  CREATE TABLE IF NOT EXISTS copies (build_id TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT;
`;

/** @throws HOST_UNSUITABLE if another node uses the file, it is damaged, or a newer version of svc wrote it. */
export const TEMPLATES_VERSION = 3;

export function openDatabase(path: string, options: Omit<StoreOptions, "schema"> = {}): Database {
  const store = openStore(path, { ...options, schema: { version: TEMPLATES_VERSION, oldest: TEMPLATES_VERSION, tables } });
  const { db } = store;
  const prepared = new Map<string, ReturnType<DatabaseSync["prepare"]>>();
  const statement = (sql: string) => {
    const known = prepared.get(sql) ?? db.prepare(sql);
    prepared.set(sql, known);
    return known;
  };
  const change = (sql: string, values: SQLInputValue[]) => Number(statement(sql).run(...values).changes);
  return {
    all: (sql, ...values) => statement(sql).all(...values),
    get: (sql, ...values) => statement(sql).get(...values),
    run: (sql, ...values) => (db.isTransaction ? change(sql, values) : store.write(() => change(sql, values))),
    remove: (sql, ...values) => (db.isTransaction ? change(sql, values) : store.settle(() => change(sql, values))),
    transaction: store.write,
    settle: store.settle,
    close() {
      prepared.clear();
      store.close();
    },
  };
}
