// Webhooks and the position of each in the log of events, in a SQLite file of their own.
import { fail } from "@svc/contract/failures.ts";
import { isLaterWebhook, MAX_WEBHOOK_RECORDS, type WebhookRecord } from "@svc/contract/webhooks.ts";
import { type Durability, openStore } from "@svc/kit/database.ts";
import type { DiskReserve } from "@svc/kit/disk-reserve.ts";
import { attemptTables, openWebhookAttempts, type WebhookAttempts } from "./webhook-attempts.ts";

const tables = `
  CREATE TABLE IF NOT EXISTS webhooks (id TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS positions (webhook_id TEXT PRIMARY KEY, event_id INTEGER NOT NULL, attempts INTEGER NOT NULL, next_at INTEGER NOT NULL) STRICT;
  ${attemptTables}
`;
/** A node that was away for longer than this may bring a deleted webhook back. */
const DELETED_KEPT_MS = 30 * 24 * 3_600_000;

/** The last event that was delivered or skipped, and how often the next one was tried. */
export type Position = { readonly eventID: number; readonly attempts: number; readonly nextAtMs: number };

export interface WebhookStore {
  readonly attempts: WebhookAttempts;
  all(): WebhookRecord[];
  /** Includes deleted ones, which gateways pass on. */
  records(): WebhookRecord[];
  /** @throws WEBHOOK_NOT_FOUND. */
  get(id: string): WebhookRecord;
  /** Keeps the records that are later than its own; a webhook that is new or was disabled begins after the event `newest`. */
  settle(records: readonly WebhookRecord[], newest: number): WebhookRecord[];
  position(id: string): Position | undefined;
  setPosition(id: string, position: Position): void;
  close(): void;
}

export type WebhookStoreOptions = {
  readonly path: string;
  readonly durability: Durability;
  readonly reserve: DiskReserve | undefined;
  readonly wallMs: () => number;
};

export function openWebhookStore({ path, durability, reserve, wallMs }: WebhookStoreOptions): WebhookStore {
  const store = openStore(path, { schema: { version: 1, tables }, durability, reserve });
  const { db } = store;
  const attempts = openWebhookAttempts(store, wallMs);
  const known = new Map<string, WebhookRecord>();
  for (const row of db.prepare("SELECT record FROM webhooks").all()) {
    const record = JSON.parse(row["record"] as string) as WebhookRecord;
    known.set(record.id, record);
  }
  const positions = new Map<string, Position>();
  for (const row of db.prepare("SELECT * FROM positions").all())
    positions.set(row["webhook_id"] as string, {
      eventID: row["event_id"] as number,
      attempts: row["attempts"] as number,
      nextAtMs: row["next_at"] as number,
    });
  const put = db.prepare("INSERT INTO webhooks VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET record = excluded.record");
  const drop = db.prepare("DELETE FROM webhooks WHERE id = ?");
  const dropPosition = db.prepare("DELETE FROM positions WHERE webhook_id = ?");
  const putPosition = db.prepare("INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?)");
  const living = () => [...known.values()].filter(({ isDeleted }) => !isDeleted);

  /** Deleted webhooks whose records no node needs any more. */
  function expired(): string[] {
    const gone = [...known.values()].filter(({ isDeleted }) => isDeleted).sort((a, b) => b.updatedAtMs - a.updatedAtMs);
    const isOld = ({ updatedAtMs }: WebhookRecord) => wallMs() - updatedAtMs > DELETED_KEPT_MS;
    return gone.filter((each, at) => isOld(each) || at >= MAX_WEBHOOK_RECORDS / 2).map(({ id }) => id);
  }

  return {
    attempts,
    all: living,
    records: () => [...known.values()],
    get(id) {
      const found = known.get(id);
      return found === undefined || found.isDeleted ? fail("WEBHOOK_NOT_FOUND", `webhook '${id}' was not found; GET /events/webhooks lists them`) : found;
    },
    settle(records, newest) {
      const later = records.filter((each) => isLaterWebhook(each, known.get(each.id)));
      if (later.length === 0) return later;
      const begins = later.filter(({ id, isDeleted, enabled }) => !isDeleted && (!positions.has(id) || (enabled && known.get(id)?.enabled === false)));
      const isRemoval = later.every(({ isDeleted }) => isDeleted);
      const forgotten = expired();
      const steps = () => {
        for (const each of later) {
          put.run(each.id, JSON.stringify(each));
          if (each.isDeleted) dropPosition.run(each.id);
        }
        for (const { id } of begins) putPosition.run(id, newest, 0, 0);
        for (const id of forgotten) drop.run(id);
      };
      if (isRemoval) store.settle(steps);
      else store.write(steps);
      for (const { id, isDeleted } of later) if (isDeleted) attempts.drop(id);
      for (const id of forgotten) known.delete(id);
      for (const each of later) {
        // The secret of a deleted webhook is in the file until SQLite reuses its page, and nowhere else.
        known.set(each.id, each);
        if (each.isDeleted) positions.delete(each.id);
      }
      for (const { id } of begins) positions.set(id, { eventID: newest, attempts: 0, nextAtMs: 0 });
      return later;
    },
    position: (id) => positions.get(id),
    setPosition(id, position) {
      positions.set(id, position);
      store.settle(() => putPosition.run(id, position.eventID, position.attempts, position.nextAtMs));
    },
    close: store.close,
  };
}
