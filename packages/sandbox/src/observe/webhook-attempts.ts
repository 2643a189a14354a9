// The record of deliveries to webhooks: each of the newest attempts, and counts by the hour, in the file of the webhooks.
import { asFailure, fail } from "@svc/contract/failures.ts";
import { comparePositions, parsePositionToken, positionToken } from "@svc/contract/list-position.ts";
import type { Parsed } from "@svc/contract/operation.ts";
import {
  deliveryPosition,
  type listWebhookDeliveries,
  type StatsBucket,
  statsOf,
  type WebhookDelivery,
  type WebhookDeliveryGroup,
  type WebhookStats,
} from "@svc/contract/webhook-deliveries.ts";
import type { Store } from "@svc/kit/database.ts";

export const attemptTables = `
  CREATE TABLE IF NOT EXISTS attempts (id TEXT PRIMARY KEY, webhook_id TEXT NOT NULL, at INTEGER NOT NULL, record TEXT NOT NULL) STRICT;
  CREATE INDEX IF NOT EXISTS attempts_by_webhook ON attempts (webhook_id, at);
  CREATE TABLE IF NOT EXISTS attempt_hours (
    webhook_id TEXT NOT NULL, hour INTEGER NOT NULL, total INTEGER NOT NULL, failed INTEGER NOT NULL,
    sum_ms INTEGER NOT NULL, min_ms INTEGER NOT NULL, max_ms INTEGER NOT NULL, PRIMARY KEY (webhook_id, hour)) STRICT;
`;

/** Per webhook; with 50 webhooks the record stays below some 100 MB, and far below that as long as receivers answer briefly. */
export const MAX_ATTEMPTS = 500;
const HOUR_MS = 3_600_000;
const KEPT_MS = 7 * 24 * HOUR_MS;
const DEFAULT_RANGE_MS = 24 * HOUR_MS;

type Asked = Parsed<typeof listWebhookDeliveries>;

export interface WebhookAttempts {
  /** Returns false if the disk is full: the attempt is then not recorded. */
  add(attempt: WebhookDelivery): boolean;
  page(asked: Asked): { groups: WebhookDeliveryGroup[]; next: string | undefined };
  /** @throws WEBHOOK_NOT_FOUND. */
  get(webhookID: string, deliveryID: string): WebhookDelivery;
  stats(webhookID: string, start: string | undefined, end: string | undefined): WebhookStats;
  /** Drops what is recorded of a webhook that was deleted. */
  drop(webhookID: string): void;
}

export function openWebhookAttempts({ db, write, settle }: Store, wallMs: () => number): WebhookAttempts {
  const insert = db.prepare("INSERT OR REPLACE INTO attempts VALUES (?, ?, ?, ?)");
  const count = db.prepare(`INSERT INTO attempt_hours VALUES (?, ?, 1, ?, ?, ?, ?) ON CONFLICT (webhook_id, hour) DO UPDATE SET total = total + 1,
    failed = failed + excluded.failed, sum_ms = sum_ms + excluded.sum_ms, min_ms = min(min_ms, excluded.min_ms), max_ms = max(max_ms, excluded.max_ms)`);
  const trim = db.prepare(`DELETE FROM attempts WHERE webhook_id = ?1 AND (at < ?2 OR id IN
    (SELECT id FROM attempts WHERE webhook_id = ?1 ORDER BY at DESC, id DESC LIMIT -1 OFFSET ${MAX_ATTEMPTS}))`);
  const trimHours = db.prepare("DELETE FROM attempt_hours WHERE webhook_id = ? AND hour < ?");
  const all = db.prepare("SELECT record FROM attempts WHERE webhook_id = ? AND at >= ? ORDER BY at DESC, id DESC");
  const one = db.prepare("SELECT record FROM attempts WHERE webhook_id = ? AND id = ?");
  const hours = db.prepare("SELECT * FROM attempt_hours WHERE webhook_id = ? AND hour >= ? AND hour < ? ORDER BY hour");
  const dropAttempts = db.prepare("DELETE FROM attempts WHERE webhook_id = ?");
  const dropHours = db.prepare("DELETE FROM attempt_hours WHERE webhook_id = ?");

  return {
    add(attempt) {
      const { id, webhookId, durationMs, status, timestamp } = attempt;
      const atMs = Date.parse(timestamp);
      try {
        write(() => {
          insert.run(id, webhookId, atMs, JSON.stringify(attempt));
          count.run(webhookId, Math.floor(atMs / HOUR_MS), status === "failed" ? 1 : 0, durationMs, durationMs, durationMs);
          trim.run(webhookId, wallMs() - KEPT_MS);
          trimHours.run(webhookId, Math.floor((wallMs() - KEPT_MS) / HOUR_MS));
        });
        return true;
      } catch (error) {
        if (asFailure(error).name !== "DISK_FULL") throw error;
        return false;
      }
    },
    page({ webhookID, cursor, limit, orderAsc, start, end, deliveryStatus, eventType }) {
      const [fromMs, untilMs] = [start === undefined ? 0 : Date.parse(start), end === undefined ? Number.POSITIVE_INFINITY : Date.parse(end)];
      const statuses = deliveryStatus === undefined ? undefined : [deliveryStatus].flat();
      const types = eventType === undefined ? undefined : [eventType].flat();
      const groups = new Map<string, WebhookDelivery[]>();
      for (const row of all.all(webhookID, fromMs)) {
        const attempt = JSON.parse(row["record"] as string) as WebhookDelivery;
        if (Date.parse(attempt.timestamp) >= untilMs || statuses?.includes(attempt.status) === false || types?.includes(attempt.eventType) === false) continue;
        groups.set(attempt.eventId, [...(groups.get(attempt.eventId) ?? []), attempt]);
      }
      const direction = orderAsc === "true" ? 1 : -1;
      const after = cursor === undefined ? undefined : parsePositionToken(cursor, "cursor", "x-next-cursor");
      const sorted = [...groups]
        .map(([eventId, attempts]): WebhookDeliveryGroup => {
          const [{ eventType: type, sandboxId }] = attempts as [WebhookDelivery];
          return { eventId, eventType: type, sandboxId, attempts };
        })
        .filter((group) => after === undefined || direction * comparePositions(deliveryPosition(group), after) > 0)
        .sort((a, b) => direction * comparePositions(deliveryPosition(a), deliveryPosition(b)));
      const found = sorted.slice(0, limit);
      const last = found.at(-1);
      return { groups: found, next: sorted.length > found.length && last !== undefined ? positionToken(deliveryPosition(last)) : undefined };
    },
    get(webhookID, deliveryID) {
      const row = one.get(webhookID, deliveryID);
      if (row === undefined)
        fail("WEBHOOK_NOT_FOUND", `delivery '${deliveryID}' of this webhook was not found: the newest ${MAX_ATTEMPTS} of the last seven days are kept`);
      return JSON.parse(row["record"] as string) as WebhookDelivery;
    },
    stats(webhookID, start, end) {
      const untilMs = end === undefined ? wallMs() : Date.parse(end);
      const fromMs = start === undefined ? untilMs - DEFAULT_RANGE_MS : Date.parse(start);
      const found = hours.all(webhookID, Math.floor(fromMs / HOUR_MS), Math.ceil(untilMs / HOUR_MS));
      return statsOf(
        found.map((row): StatsBucket => {
          const total = row["total"] as number;
          return {
            timestamp: new Date((row["hour"] as number) * HOUR_MS).toISOString(),
            total,
            failed: row["failed"] as number,
            durationMs: { minimum: row["min_ms"] as number, average: (row["sum_ms"] as number) / total, maximum: row["max_ms"] as number },
          };
        }),
      );
    },
    drop(webhookID) {
      settle(() => {
        dropAttempts.run(webhookID);
        dropHours.run(webhookID);
      });
    },
  };
}
