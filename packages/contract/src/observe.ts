// Observation of a sandbox: metrics, both logs endpoints, the events of the node.
import { z } from "zod";
import { sandboxID } from "./fields.ts";
import { operation } from "./operation.ts";

export const sandboxMetric = z.object({
  timestamp: z.string().describe("RFC 3339"),
  timestampUnix: z.number().int(),
  cpuCount: z.number().int(),
  cpuUsedPct: z.number().describe("100 is one whole CPU"),
  memUsed: z.number().int().describe("bytes"),
  memTotal: z.number().int(),
  memCache: z.number().int(),
  diskUsed: z.number().int(),
  diskTotal: z.number().int(),
});
export type SandboxMetric = z.output<typeof sandboxMetric>;

const unixSeconds = z.coerce.number().int().min(0);

export const getSandboxMetrics = operation({
  name: "getSandboxMetrics",
  method: "GET",
  path: "/sandboxes/{sandboxID}/metrics",
  summary: "What the sandbox used, a sample every few seconds, the last hour at most; without bounds the newest sample ends the list",
  input: z.object({ sandboxID, start: unixSeconds.optional(), end: unixSeconds.optional() }),
  output: z.array(sandboxMetric),
  success: 200,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED", "SANDBOX_NOT_FOUND"],
});

export const getSandboxesMetrics = operation({
  name: "getSandboxesMetrics",
  method: "GET",
  path: "/sandboxes/metrics",
  summary: "The newest sample of several sandboxes",
  input: z.object({ sandbox_ids: z.string().min(1).max(8192).describe("ids joined by commas; at most 100") }),
  output: z.object({ sandboxes: z.record(z.string(), sandboxMetric) }),
  success: 200,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED"],
});

export const logLevels = ["debug", "info", "warn", "error"] as const;
export const logKinds = ["lifecycle", "process", "network"] as const;

export const logEntry = z.object({
  timestamp: z.string(),
  message: z.string(),
  level: z.enum(logLevels),
  fields: z.record(z.string(), z.string()).describe("`kind` says what speaks: lifecycle, process or network"),
});
export type LogEntry = z.output<typeof logEntry>;

const logLimit = z.coerce.number().int().min(1).max(1000).default(1000);

export const getSandboxLogs = operation({
  name: "getSandboxLogs",
  method: "GET",
  path: "/sandboxes/{sandboxID}/logs",
  summary: "The sandbox's log, oldest first; also for an hour after its end",
  input: z.object({
    sandboxID,
    start: z.coerce.number().int().min(0).optional().describe("Milliseconds since 1970; the next page begins at the last entry's plus one"),
    limit: logLimit,
  }),
  output: z.object({ logs: z.array(z.object({ timestamp: z.string(), line: z.string() })), logEntries: z.array(logEntry) }),
  success: 200,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED", "SANDBOX_NOT_FOUND"],
});

export const getSandboxLogsV2 = operation({
  name: "getSandboxLogsV2",
  method: "GET",
  path: "/v2/sandboxes/{sandboxID}/logs",
  summary: "The sandbox's log from a moment on, in either direction, by level, kind or words",
  input: z.object({
    sandboxID,
    cursor: z.coerce
      .number()
      .int()
      .min(0)
      .optional()
      .describe("Milliseconds since 1970. Forward: this one and later; backward: earlier ones, newest first. No two entries of a sandbox have the same"),
    limit: logLimit,
    direction: z.enum(["forward", "backward"]).default("forward"),
    level: z.enum(logLevels).optional().describe("This level and those above it"),
    kind: z.enum(logKinds).optional(),
    search: z.string().max(256).optional().describe("A part of the message, in either case"),
  }),
  output: z.object({ logs: z.array(logEntry) }),
  success: 200,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED", "SANDBOX_NOT_FOUND"],
});

export const lifecycleEvents = [
  "sandbox.created",
  "sandbox.paused",
  "sandbox.resumed",
  "sandbox.forked",
  "sandbox.snapshotted",
  "sandbox.network_changed",
  "sandbox.timeout_set",
  "sandbox.pause_failed",
  "sandbox.limit_reached",
  "sandbox.ended",
  "sandbox.exported",
  "sandbox.moved",
  "snapshot.exported",
  "snapshot.imported",
  "snapshot.unnamed",
  "snapshot.deleted",
  "template.build_started",
  "template.built",
  "template.build_failed",
  "template.exported",
  "template.imported",
  "template.dropped",
  "template.deleted",
] as const;

/** One event of GET /events, sent as one JSON object per server-sent event; a reader resumes after `id` (Last-Event-ID). */
export const lifecycleEvent = z.object({
  id: z.number().int(),
  type: z.enum(lifecycleEvents),
  at: z.string().describe("RFC 3339"),
  sandboxID: z.string().optional(),
  templateID: z.string().optional(),
  details: z
    .record(z.string(), z.union([z.string(), z.number(), z.boolean()]))
    .describe("For sandbox.ended: reason, and the sums of GET /usage; for sandbox.limit_reached: limit, killed, refused, program"),
});
export type LifecycleEvent = z.output<typeof lifecycleEvent>;

/** Sent instead of an event: the requested position is no longer stored, or was never issued; the stream continues at `oldest`. */
export const eventGap = z.object({ asked: z.number().int(), oldest: z.number().int(), newest: z.number().int() });

const eventTypes = z
  .string()
  .max(1024)
  .transform((text, context) => {
    const words = text.split(",").filter(Boolean);
    const unknown = words.find((word) => !lifecycleEvents.some((type) => type === word));
    if (unknown === undefined) return words as (typeof lifecycleEvents)[number][];
    context.addIssue({ code: "custom", message: `'${unknown}' is not a type of event; expected one of ${lifecycleEvents.join(", ")}` });
    return z.NEVER;
  });

/** Not part of the table of operations, since its answer is a stream instead of one value. */
export const streamEvents = operation({
  name: "streamEvents",
  method: "GET",
  path: "/events",
  summary:
    "What happens to sandboxes and templates, as server-sent events, from now on or behind an id; ids only rise, also over restarts. " +
    "Event `gap`: events are missing here; event `overflow`: the client read too slowly, and is to come back with its last id",
  input: z.object({
    after: z.coerce.number().int().min(0).optional().describe("Id of the last event known; 0: all that are kept"),
    lastEventID: z.coerce.number().int().min(0).optional().describe("As `after`, and before it: what a client sends when it comes back"),
    sandboxID: z.string().min(1).max(64).optional().describe("Events of this sandbox alone"),
    types: eventTypes.optional().describe("These types alone, joined by commas"),
  }),
  headers: { lastEventID: "last-event-id" },
  output: lifecycleEvent,
  media: "text/event-stream",
  success: 200,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED", "TOO_MANY_REQUESTS", "SHUTTING_DOWN"],
});
