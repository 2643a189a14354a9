// The node's lifecycle events: on disk before their cause is acknowledged, with increasing ids, the newest kept for a day.
import type { LifecycleEvent } from "@svc/contract/observe.ts";
import type { Durability } from "@svc/kit/database.ts";
import type { Log } from "@svc/kit/log.ts";
import { openOrQuarantine } from "./damaged-store.ts";
import type { Facts } from "./e2b-event.ts";
import { factsTable, ofTenant, openFacts } from "./facts.ts";

export type EventType = LifecycleEvent["type"];
export type Subject = {
  readonly sandboxID?: string;
  readonly templateID?: string;
  readonly details?: LifecycleEvent["details"];
  readonly facts?: Facts | undefined;
};

/** An event and its text on the wire, which is made once for all readers. */
export type Entry = {
  readonly id: number;
  readonly type: EventType;
  readonly sandboxID: string | undefined;
  readonly event: LifecycleEvent;
  readonly frame: string;
};

export interface Events {
  /**
   * Returns when the event would survive the end of this process, after some tens of microseconds. Never throws: on a full disk the event waits
   * in
   * memory, the write is retried, and the log says so.
   */
  record(type: EventType, subject: Subject): void;
  /** Returns at most `limit` entries after the id `after`, oldest first. */
  read(after: number, limit: number): Entry[];
  /** Returns events of these types, of one sandbox or of all, of one tenant or of all, newest first unless `ascending`. */
  list(query: EventQuery): LifecycleEvent[];
  /** Returns the facts about the sandbox that E2B's form of this event includes. */
  factsOf(event: LifecycleEvent): Facts | undefined;
  /** The id of the oldest entry; one more than `newest` if there is none. */
  readonly oldest: number;
  /** The id of the newest entry ever recorded; 0 before the first. */
  readonly newest: number;
  /** The number of entries that are not in the file yet. */
  readonly unwritten: number;
  readonly lost: number;
  /** Calls `onMore` once after a burst of records, not for each. */
  watch(onMore: () => void): () => void;
  /** Removes expired entries; also runs periodically. */
  prune(): void;
  close(): void;
}

export type EventQuery = {
  readonly types: readonly EventType[];
  readonly sandboxID: string | undefined;
  /** Undefined: the deployment itself asks, which sees the events of all. */
  readonly tenant: string | undefined;
  readonly offset: number;
  readonly limit: number;
  readonly ascending: boolean;
};

export type EventsOptions = {
  readonly path: string;
  readonly log: Log;
  readonly durability?: Durability;
  readonly wallMs?: () => number;
  /** Called for each recorded event. */
  readonly onRecord?: (type: EventType) => void;
  readonly maxEvents?: number;
  readonly keptMs?: number;
};

export const EVENTS_KEPT = 100_000;
export const EVENTS_KEPT_MS = 24 * 3_600_000;
/** AUTOINCREMENT never gives an id twice, even when all rows are gone. */
const tables = `
  CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, type TEXT NOT NULL, sandbox_id TEXT, template_id TEXT, details TEXT NOT NULL
  ) STRICT;
  CREATE INDEX IF NOT EXISTS events_at ON events (at);
  CREATE INDEX IF NOT EXISTS events_of ON events (sandbox_id, id);
  ${factsTable}
`;
const PRUNE_EVERY = 1_000;
const PRUNE_EVERY_MS = 60_000;
/** The number of entries also kept in memory, for readers that are up to date. */
const RECENT = 2_048;
const MAX_UNWRITTEN = 1_000;
const RETRY_MS = 1_000;

/** @throws HOST_UNSUITABLE when another node has the file open. */
export function openEvents({ path, log, durability, wallMs = Date.now, onRecord, maxEvents = EVENTS_KEPT, keptMs = EVENTS_KEPT_MS }: EventsOptions): Events {
  const { store, isNew } = openOrQuarantine({ path, tables, durability, log, what: "events" });
  const { db } = store;
  // The ids continue above all that a reader can have seen, so that it is notified of a gap instead of waiting for old ids to return.
  if (isNew) db.prepare("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)").run(wallMs());
  const insert = db.prepare("INSERT INTO events (at, type, sandbox_id, template_id, details) VALUES (?, ?, ?, ?, ?)");
  const select = db.prepare("SELECT * FROM events WHERE id > ? ORDER BY id LIMIT ?");
  const facts = openFacts(db);
  const first = db.prepare("SELECT min(id) AS id FROM events");
  const drop = db.prepare("DELETE FROM events WHERE id <= max(?, coalesce((SELECT max(id) FROM events INDEXED BY events_at WHERE at < ?), 0))");

  let newest = Number(db.prepare("SELECT seq FROM sqlite_sequence WHERE name = 'events'").get()?.["seq"] ?? 0);
  let oldest = 0;
  let lost = 0;
  const recent: Entry[] = [];
  const unwritten: { at: number; type: EventType; subject: Subject }[] = [];
  const watchers = new Set<() => void>();
  let isNotifying = false;
  let isKeepingOld = false;

  function prune(): void {
    try {
      drop.run(newest - maxEvents, wallMs() - keptMs);
      facts.prune(wallMs() - keptMs);
      isKeepingOld = false;
    } catch (error) {
      if (!isKeepingOld) log.warn({ err: error, path }, "expired events could not be removed; retrying every minute");
      isKeepingOld = true;
    }
    oldest = Number(first.get()?.["id"] ?? newest + 1);
    while (recent[0] !== undefined && recent[0].id < oldest) recent.shift();
  }

  function write({ at, type, subject: { sandboxID, templateID, details = {}, facts: shown } }: (typeof unwritten)[number]): void {
    if (sandboxID !== undefined && shown !== undefined) facts.put(sandboxID, shown, at);
    const id = Number(insert.run(at, type, sandboxID ?? null, templateID ?? null, JSON.stringify(details)).lastInsertRowid);
    newest = id;
    const subject = { ...(sandboxID === undefined ? {} : { sandboxID }), ...(templateID === undefined ? {} : { templateID }) };
    recent.push(entryOf({ id, type, at: new Date(at).toISOString(), ...subject, details }));
    if (recent.length > RECENT) recent.shift();
    if (id % PRUNE_EVERY === 0) prune();
    if (isNotifying || watchers.size === 0) return;
    isNotifying = true;
    setImmediate(() => {
      isNotifying = false;
      for (const watcher of watchers) watcher();
    });
  }

  function writeAll(): void {
    try {
      for (let next = unwritten[0]; next !== undefined; next = unwritten[0]) {
        write(next);
        unwritten.shift();
      }
    } catch (error) {
      if (unwritten.length === 1) log.error({ err: error, path }, "an event could not be written; retrying every second");
      if (unwritten.length <= MAX_UNWRITTEN) return;
      unwritten.shift();
      if (++lost === 1) log.error({ path, held: MAX_UNWRITTEN }, "events are lost: the disk is full or failing, and no more fit in memory");
    }
  }

  const pruning = setInterval(prune, PRUNE_EVERY_MS).unref();
  const retrying = setInterval(() => unwritten.length > 0 && writeAll(), RETRY_MS).unref();
  prune();

  return {
    record(type, subject) {
      unwritten.push({ at: wallMs(), type, subject });
      writeAll();
      onRecord?.(type);
    },
    read(after, limit) {
      const start = recent[0];
      if (start !== undefined && after >= start.id - 1) return recent.slice(after + 1 - start.id, after + 1 - start.id + limit);
      return select.all(after, limit).map((row) => entryOf(eventOf(row)));
    },
    list({ types, sandboxID, tenant, offset, limit, ascending }) {
      const terms = [`type IN (${types.map(() => "?").join(", ")})`];
      if (sandboxID !== undefined) terms.push("sandbox_id = ?");
      if (tenant !== undefined) terms.push(ofTenant);
      const values = [sandboxID, tenant].filter((each) => each !== undefined);
      const listed = db.prepare(`SELECT * FROM events WHERE ${terms.join(" AND ")} ORDER BY id ${ascending ? "ASC" : "DESC"} LIMIT ? OFFSET ?`);
      return listed.all(...types, ...values, limit, offset).map(eventOf);
    },
    factsOf: ({ sandboxID, at }) => (sandboxID === undefined ? undefined : facts.of(sandboxID, Date.parse(at))),
    get oldest() {
      return oldest;
    },
    get newest() {
      return newest;
    },
    get unwritten() {
      return unwritten.length;
    },
    get lost() {
      return lost;
    },
    watch(onMore) {
      watchers.add(onMore);
      return () => watchers.delete(onMore);
    },
    prune,
    close() {
      clearInterval(pruning);
      clearInterval(retrying);
      watchers.clear();
      store.close();
    },
  };
}

function eventOf(row: Record<string, unknown>): LifecycleEvent {
  const sandboxID = row["sandbox_id"] as string | null;
  const templateID = row["template_id"] as string | null;
  return {
    id: row["id"] as number,
    type: row["type"] as EventType,
    at: new Date(row["at"] as number).toISOString(),
    ...(sandboxID === null ? {} : { sandboxID }),
    ...(templateID === null ? {} : { templateID }),
    details: JSON.parse(row["details"] as string) as LifecycleEvent["details"],
  };
}

function entryOf(event: LifecycleEvent): Entry {
  const { id, type, sandboxID } = event;
  return { id, type, sandboxID, event, frame: `id: ${id}\nevent: ${type}\ndata: ${JSON.stringify(event)}\n\n` };
}
