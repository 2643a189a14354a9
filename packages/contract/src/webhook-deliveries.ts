// The record of a webhook's deliveries in E2B's form: each attempt of the last days, and how many there were by the hour.
import { z } from "zod";
import { operation } from "./operation.ts";
import { e2bEvents } from "./webhooks.ts";

const count = z.number().int().min(0);

export const errorClasses = ["http_error", "dns_error", "timeout", "transport_error", "request_error", "signature_error", "canceled"] as const;

/** One attempt to deliver one event. */
export const webhookDelivery = z.object({
  id: z.uuid().describe("The header e2b-delivery-id of the attempt"),
  teamId: z.string(),
  webhookId: z.uuid(),
  eventId: z.uuid(),
  sandboxId: z.string(),
  eventType: z.enum(e2bEvents),
  status: z.enum(["success", "failed"]),
  durationMs: count,
  requestBody: z.string(),
  requestHeaders: z.string().describe("JSON; the signature is left out"),
  requestUrl: z.string(),
  responseBody: z.string().nullable().describe("Its first 4096 characters"),
  responseHeaders: z.string().nullable().describe("JSON; cookies are left out"),
  responseHttpStatusCode: z.number().int().nullable(),
  errorClass: z.enum(errorClasses).nullable(),
  errorMessage: z.string().nullable(),
  timestamp: z.string().describe("When the attempt began, RFC 3339"),
});
export type WebhookDelivery = z.output<typeof webhookDelivery>;

/** The attempts to deliver one event, newest first. */
export const webhookDeliveryGroup = z.object({
  eventId: z.uuid(),
  eventType: z.enum(e2bEvents),
  sandboxId: z.string(),
  attempts: z.array(webhookDelivery),
});
export type WebhookDeliveryGroup = z.output<typeof webhookDeliveryGroup>;

const webhookID = z.string().min(1).max(64);
const instant = z.iso.datetime({ offset: true }).optional();
const onWebhook = ["INVALID_REQUEST", "UNAUTHENTICATED", "WEBHOOK_NOT_FOUND"] as const;
const oneOrMore = <T extends z.ZodType>(item: T) => z.union([item, z.array(item)]).optional();

export const listWebhookDeliveries = operation({
  name: "listWebhookDeliveries",
  method: "GET",
  path: "/events/webhooks/{webhookID}/deliveries",
  summary: "The attempts to deliver a webhook's events, by event, newest first; the header x-next-cursor names the next page",
  input: z.object({
    webhookID,
    cursor: z.string().max(512).optional(),
    limit: z.coerce.number().int().min(1).max(100).default(10),
    orderAsc: z.enum(["true", "false"]).default("false").describe("true: oldest first"),
    start: instant.describe("Attempts at or after this time"),
    end: instant.describe("Attempts before this time"),
    deliveryStatus: oneOrMore(z.enum(["success", "failed"])),
    eventType: oneOrMore(z.enum(e2bEvents)),
  }),
  output: z.array(webhookDeliveryGroup),
  success: 200,
  credential: "apiKey",
  failures: onWebhook,
});

export const getWebhookDelivery = operation({
  name: "getWebhookDelivery",
  method: "GET",
  path: "/events/webhooks/{webhookID}/deliveries/{deliveryID}",
  summary: "One attempt to deliver an event",
  input: z.object({ webhookID, deliveryID: z.string().min(1).max(64) }),
  output: webhookDelivery,
  success: 200,
  credential: "apiKey",
  failures: onWebhook,
});

const durations = z.object({ minimum: z.number(), average: z.number(), maximum: z.number() });
const bucket = z.object({ timestamp: z.string(), total: count, failed: count, durationMs: durations });
export type StatsBucket = z.output<typeof bucket>;
export const webhookStats = z.object({ buckets: z.array(bucket), total: count, failed: count, durationMs: durations });
export type WebhookStats = z.output<typeof webhookStats>;

export const getWebhookStats = operation({
  name: "getWebhookStats",
  method: "GET",
  path: "/events/webhooks/{webhookID}/stats",
  summary: "The number of attempts, of failed ones, and their durations, in total and by the hour; of the last 24 hours unless start and end are given",
  input: z.object({ webhookID, start: instant, end: instant }),
  output: webhookStats,
  success: 200,
  credential: "apiKey",
  failures: onWebhook,
});

export const webhookDeliveryOperations = { listWebhookDeliveries, getWebhookDelivery, getWebhookStats } as const;

/** Adds up buckets by their hour, as one node counts them or as several do. */
export function statsOf(all: readonly StatsBucket[]): WebhookStats {
  const byHour = new Map<string, StatsBucket[]>();
  for (const each of all) byHour.set(each.timestamp, [...(byHour.get(each.timestamp) ?? []), each]);
  const buckets = [...byHour].sort(([a], [b]) => (a < b ? -1 : 1)).map(([timestamp, parts]) => ({ timestamp, ...summed(parts) }));
  return { buckets, ...summed(buckets) };
}

function summed(parts: readonly StatsBucket[]): Omit<StatsBucket, "timestamp"> {
  const total = parts.reduce((sum, each) => sum + each.total, 0);
  const failed = parts.reduce((sum, each) => sum + each.failed, 0);
  const whole = parts.reduce((sum, each) => sum + each.total * each.durationMs.average, 0);
  const minimum = parts.length === 0 ? 0 : Math.min(...parts.map(({ durationMs }) => durationMs.minimum));
  const maximum = Math.max(0, ...parts.map(({ durationMs }) => durationMs.maximum));
  return { total, failed, durationMs: { minimum, average: total === 0 ? 0 : whole / total, maximum } };
}

/** Where a page of deliveries begins and how it is sorted: by the newest attempt of each event. */
export function deliveryPosition({ attempts, eventId }: WebhookDeliveryGroup): readonly [atMs: number, id: string] {
  return [Math.max(0, ...attempts.map(({ timestamp }) => Date.parse(timestamp))), eventId];
}
