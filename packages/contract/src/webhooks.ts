// E2B's list of a sandbox's events, and webhooks, which push the same events to a URL.
import { z } from "zod";
import { operation } from "./operation.ts";

export const e2bEvents = [
  "sandbox.lifecycle.created",
  "sandbox.lifecycle.updated",
  "sandbox.lifecycle.paused",
  "sandbox.lifecycle.resumed",
  "sandbox.lifecycle.checkpointed",
  "sandbox.lifecycle.killed",
] as const;
export type E2bEventType = (typeof e2bEvents)[number];

/** A deployment has one team. */
export const TEAM_ID = "00000000-0000-0000-0000-000000000000";
/** Pages further back would make every node read all of its events. */
export const MAX_EVENT_OFFSET = 10_000;

const eventData = z.record(z.string(), z.unknown()).nullable();

/** E2B documents the members in camel case and sends webhooks in snake case, so an event has both. */
export const e2bEvent = z.object({
  version: z.literal("v2"),
  id: z.uuid(),
  type: z.enum(e2bEvents),
  timestamp: z.string().describe("RFC 3339"),
  eventData,
  sandboxId: z.string(),
  sandboxExecutionId: z.string().describe("New at every start of the sandbox's system; empty if no longer known"),
  sandboxTemplateId: z.string(),
  sandboxBuildId: z.string().describe("Always empty"),
  sandboxTeamId: z.string(),
  event_category: z.literal("lifecycle"),
  event_label: z.string(),
  event_data: eventData,
  sandbox_id: z.string(),
  sandbox_execution_id: z.string(),
  sandbox_template_id: z.string(),
  sandbox_build_id: z.string(),
  sandbox_team_id: z.string(),
  tenant: z.string().optional().describe("The tenant that the sandbox belongs to; absent for the deployment's own"),
});
export type E2bEvent = z.output<typeof e2bEvent>;

const page = {
  offset: z.coerce.number().int().min(0).max(MAX_EVENT_OFFSET).default(0),
  limit: z.coerce.number().int().min(1).max(100).default(10),
  orderAsc: z.enum(["true", "false"]).default("false").describe("true: oldest first"),
  types: z
    .union([z.enum(e2bEvents), z.array(z.enum(e2bEvents))])
    .optional()
    .describe("These types alone; may be given several times"),
};

export const listSandboxEvents = operation({
  name: "listSandboxEvents",
  method: "GET",
  path: "/events/sandboxes",
  summary: "What happened to sandboxes within the last day, newest first, as E2B lists it",
  input: z.object(page),
  output: z.array(e2bEvent),
  success: 200,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED"],
});

export const listEventsOfSandbox = operation({
  ...listSandboxEvents,
  name: "listEventsOfSandbox",
  path: "/events/sandboxes/{sandboxID}",
  summary: "What happened to one sandbox within the last day; also after its end",
  input: z.object({ sandboxID: z.string().min(1).max(64), ...page }),
});

const webhookFields = {
  name: z.string().min(1).max(128),
  url: z.url({ protocol: /^https?$/, error: "expected an http or https URL" }).max(2048),
  enabled: z.boolean(),
  events: z.array(z.enum(e2bEvents)).min(1).max(32),
  signatureSecret: z.string().min(1).max(1024).describe("Signs each delivery; no answer has it"),
};

export const webhook = z.object({
  id: z.uuid(),
  name: z.string(),
  createdAt: z.string(),
  teamId: z.string(),
  teamID: z.string(),
  enabled: z.boolean(),
  url: z.string(),
  events: z.array(z.enum(e2bEvents)),
});
export type Webhook = z.output<typeof webhook>;

const webhookID = z.string().min(1).max(64);
const onWebhook = ["INVALID_REQUEST", "UNAUTHENTICATED", "WEBHOOK_NOT_FOUND"] as const;

export const createWebhook = operation({
  name: "createWebhook",
  method: "POST",
  path: "/events/webhooks",
  summary: "Pushes events of these types to a URL from now on, signed with the secret",
  input: z.object({ ...webhookFields, enabled: webhookFields.enabled.default(true) }),
  output: webhook,
  success: 201,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED", "TOO_MANY_REQUESTS", "DISK_FULL"],
});

export const listWebhooks = operation({
  name: "listWebhooks",
  method: "GET",
  path: "/events/webhooks",
  summary: "Lists the webhooks, without their secrets",
  input: z.object({}),
  output: z.array(webhook),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED"],
});

export const getWebhook = operation({
  name: "getWebhook",
  method: "GET",
  path: "/events/webhooks/{webhookID}",
  summary: "One webhook",
  input: z.object({ webhookID }),
  output: webhook,
  success: 200,
  credential: "apiKey",
  failures: onWebhook,
});

export const updateWebhook = operation({
  name: "updateWebhook",
  method: "PATCH",
  path: "/events/webhooks/{webhookID}",
  summary: "Changes the members that are given; deliveries that are still pending follow the change",
  input: z.object({
    webhookID,
    name: webhookFields.name.optional(),
    url: webhookFields.url.optional(),
    enabled: webhookFields.enabled.optional(),
    events: webhookFields.events.optional(),
    signatureSecret: webhookFields.signatureSecret.optional(),
  }),
  output: webhook,
  success: 200,
  credential: "apiKey",
  failures: [...onWebhook, "DISK_FULL"],
});

export const deleteWebhook = operation({
  name: "deleteWebhook",
  method: "DELETE",
  path: "/events/webhooks/{webhookID}",
  summary: "Deletes a webhook; what is pending is not delivered",
  input: z.object({ webhookID }),
  output: z.undefined(),
  success: 200,
  credential: "apiKey",
  failures: [...onWebhook, "DISK_FULL"],
});

export const webhookOperations = {
  listSandboxEvents,
  listEventsOfSandbox,
  createWebhook,
  listWebhooks,
  getWebhook,
  updateWebhook,
  deleteWebhook,
} as const;

export const MAX_WEBHOOKS = 50;

/** A webhook as nodes keep it. The record with the later `updatedAtMs` wins; a deleted one stays for a time, so that no node brings it back. */
export const webhookRecord = z.object({
  ...webhookFields,
  id: z.uuid(),
  createdAtMs: z.number().int().min(0),
  updatedAtMs: z.number().int().min(0),
  isDeleted: z.boolean(),
});
export type WebhookRecord = z.output<typeof webhookRecord>;

export const MAX_WEBHOOK_RECORDS = 1_000;

/** Sent to a node by a gateway. */
export const settleWebhooks = operation({
  name: "settleWebhooks",
  method: "POST",
  path: "/cluster/webhooks",
  summary: "Gives this node the deployment's webhooks, of which it keeps the later records, and answers with all that it then knows",
  input: z.object({ webhooks: z.array(webhookRecord).max(MAX_WEBHOOK_RECORDS) }),
  output: z.array(webhookRecord),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "INVALID_REQUEST", "DISK_FULL"],
});

export function shownWebhook({ id, name, url, enabled, events, createdAtMs }: WebhookRecord): Webhook {
  return { id, name, createdAt: new Date(createdAtMs).toISOString(), teamId: TEAM_ID, teamID: TEAM_ID, enabled, url, events: [...events] };
}

export function isLaterWebhook(a: WebhookRecord, b: WebhookRecord | undefined): boolean {
  return b === undefined || a.updatedAtMs > b.updatedAtMs || (a.updatedAtMs === b.updatedAtMs && a.isDeleted && !b.isDeleted);
}
