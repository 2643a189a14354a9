// The previews of a home: a name, a sandbox and a port each, in a SQLite file of their own.
import { fail } from "@svc/contract/failures.ts";
import {
  isLaterPreview,
  isLivingPreview,
  isSamePreview,
  MAX_PREVIEW_RECORDS,
  MAX_PREVIEWS,
  type PreviewRecord,
  previewRecord,
} from "@svc/contract/previews.ts";
import { type Durability, openStore } from "@svc/kit/database.ts";
import type { DiskReserve } from "@svc/kit/disk-reserve.ts";

const tables = "CREATE TABLE IF NOT EXISTS previews (name TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT;";
/** A node that was away for longer than this may bring a removed name back. */
const DELETED_KEPT_MS = 30 * 24 * 3_600_000;
/** The name of a sandbox that ended says so for this long, unless another sandbox takes it. */
const ENDED_KEPT_MS = 24 * 3_600_000;

export type PreviewStoreOptions = {
  readonly path: string;
  readonly durability: Durability;
  readonly reserve: DiskReserve | undefined;
  readonly wallMs: () => number;
};

export interface PreviewStore {
  /** Returns undefined for a name that nobody has; called for requests. */
  find(name: string): PreviewRecord | undefined;
  /** The number of names that `find` may return. */
  readonly size: number;
  /** Counts the changes since this process began. */
  readonly changes: number;
  /** Returns all living names, sorted. */
  all(): PreviewRecord[];
  /** Includes removed ones, which gateways pass on. */
  records(): PreviewRecord[];
  settle(records: readonly PreviewRecord[]): void;
  /** Like `settle`, for one new record. @throws PREVIEW_EXISTS, TOO_MANY_REQUESTS. */
  claim(record: PreviewRecord, replace: boolean): PreviewRecord;
  /** @throws PREVIEW_NOT_FOUND. */
  get(name: string): PreviewRecord;
  remove(name: string): void;
  /** Marks the names of a sandbox that ended. */
  ended(sandboxID: string): void;
  close(): void;
}

export function openPreviewStore({ path, durability, reserve, wallMs }: PreviewStoreOptions): PreviewStore {
  const store = openStore(path, { schema: { version: 1, tables }, durability, reserve });
  const { db } = store;
  const known = new Map<string, PreviewRecord>();
  for (const row of db.prepare("SELECT record FROM previews").all()) {
    const { data } = previewRecord.safeParse(JSON.parse(row["record"] as string));
    if (data !== undefined) known.set(data.name, data);
  }
  const living = new Map([...known].filter(([, record]) => isLivingPreview(record)));
  let changes = 0;
  const put = db.prepare("INSERT OR REPLACE INTO previews VALUES (?, ?)");
  const drop = db.prepare("DELETE FROM previews WHERE name = ?");

  /** Always later than the record before, whatever the clock says. */
  const laterThan = (before: PreviewRecord | undefined) => Math.max(wallMs(), (before?.updatedAtMs ?? -1) + 1);

  function expired(): string[] {
    const gone = [...known.values()].filter(({ isDeleted }) => isDeleted).sort((a, b) => b.updatedAtMs - a.updatedAtMs);
    return gone.filter(({ updatedAtMs }, at) => at >= MAX_PREVIEW_RECORDS - MAX_PREVIEWS || wallMs() - updatedAtMs > DELETED_KEPT_MS).map(({ name }) => name);
  }

  function write(records: readonly PreviewRecord[]): void {
    if (records.length === 0) return;
    const forgotten = expired();
    const steps = () => {
      for (const each of records) put.run(each.name, JSON.stringify(each));
      for (const name of forgotten) drop.run(name);
    };
    if (records.every(({ isDeleted, endedAtMs }) => isDeleted || endedAtMs !== null)) store.settle(steps);
    else store.write(steps);
    changes++;
    for (const name of forgotten) known.delete(name);
    for (const each of records) {
      known.set(each.name, each);
      if (isLivingPreview(each)) living.set(each.name, each);
      else living.delete(each.name);
    }
  }

  /** Removes names whose sandboxes ended long ago; every node finds the same ones. */
  function sweep(): void {
    const old = [...living.values()].filter(({ endedAtMs }) => endedAtMs !== null && wallMs() - endedAtMs > ENDED_KEPT_MS);
    write(old.map((each) => ({ ...each, isDeleted: true, updatedAtMs: each.updatedAtMs + 1 })));
  }

  function get(name: string): PreviewRecord {
    return living.get(name) ?? fail("PREVIEW_NOT_FOUND", `preview '${name}' was not found; \`svc expose list\` lists them`);
  }

  return {
    find: (name) => living.get(name),
    get size() {
      return living.size;
    },
    get changes() {
      return changes;
    },
    all() {
      sweep();
      return [...living.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
    },
    records() {
      sweep();
      return [...known.values()];
    },
    settle: (records) => write(records.filter((each) => isLaterPreview(each, known.get(each.name)))),
    claim(record, replace) {
      sweep();
      const before = living.get(record.name);
      if (before !== undefined && isSamePreview(before, record) && before.endedAtMs === null) return before;
      if (before !== undefined && before.endedAtMs === null && !replace)
        fail(
          "PREVIEW_EXISTS",
          `preview '${record.name}' leads to port ${before.port} of sandbox ${before.sandboxID}; choose another name, remove it (svc expose remove ${record.name}), or take it over (--replace)`,
        );
      if (before === undefined && living.size >= MAX_PREVIEWS) fail("TOO_MANY_REQUESTS", `there are ${MAX_PREVIEWS} previews, the maximum; remove some first`);
      const made = { ...record, updatedAtMs: Math.max(record.updatedAtMs, laterThan(known.get(record.name))) };
      write([made]);
      return made;
    },
    get,
    remove(name) {
      const before = get(name);
      write([{ ...before, isDeleted: true, updatedAtMs: laterThan(before) }]);
    },
    ended(sandboxID) {
      const its = [...living.values()].filter((each) => each.sandboxID === sandboxID && each.endedAtMs === null);
      write(its.map((each) => ({ ...each, endedAtMs: wallMs(), updatedAtMs: laterThan(each) })));
    },
    close: store.close,
  };
}
