// The public API of the sandbox platform as a table: the operations that E2B's clients call, in both versions of its API.
import { z } from "zod";
import { createHeaderFields, createHeaders } from "./create-headers.ts";
import { envVars, stringMap } from "./create-maps.ts";
import { limits, sandboxAnswer, sandboxID, seconds } from "./fields.ts";
import { collectGarbage } from "./gc.ts";
import { keyOperations } from "./keys.ts";
import {
  connectSandbox,
  connectSandboxV1,
  createSnapshot,
  forkSandbox,
  getSnapshot,
  listSnapshots,
  moveSandbox,
  pauseSandbox,
  resumeSandbox,
} from "./lifecycle.ts";
import { network, setSandboxNetwork, shownNetwork } from "./network.ts";
import { getSandboxesMetrics, getSandboxLogs, getSandboxLogsV2, getSandboxMetrics } from "./observe.ts";
import { operation } from "./operation.ts";
import { previewOperations } from "./previews.ts";
import { pullOperations } from "./pull.ts";
import { iam, secretOperations } from "./secrets.ts";
import * as template from "./template.ts";
import { tenantOperations } from "./tenants.ts";
import { getUsage } from "./usage.ts";
import { volumeMount, volumeMounts, volumeOperations } from "./volumes.ts";
import { webhookDeliveryOperations } from "./webhook-deliveries.ts";
import { webhookOperations } from "./webhooks.ts";

const createMembers = {
  templateID: z.string().min(1).max(limits.nameLength).describe("Template to start from: id or name"),
  autoPause: z
    .boolean()
    .nullish()
    .transform((value) => value ?? false)
    .describe("true: the sandbox is paused at its timeout, not ended"),
  autoPauseMemory: z
    .boolean()
    .nullish()
    .transform((value) => value ?? true)
    .describe("false: the pause at its timeout keeps its files alone"),
  autoResume: z.object({ enabled: z.boolean() }).nullish().describe("enabled: traffic to the paused sandbox resumes it; with autoPause only"),
  idlePauseSeconds: z
    .int()
    .min(0)
    .max(24 * 3600)
    .nullish()
    .describe("Paused after so many seconds without a request, a connection or work; 0: never; with autoResume only"),
  allow_internet_access: z
    .boolean()
    .nullish()
    .transform((value) => value ?? true)
    .describe("false: nothing leaves the sandbox"),
  network: network.nullish(),
  metadata: stringMap("metadata", limits.metadataKeys, limits.metadataBytes).nullish(),
  envVars: envVars.nullish(),
  strictFiles: z.boolean().nullish().describe("true: the file API reaches files with its user's rights alone (default: as the template says)"),
  mcp: z.record(z.string(), z.unknown()).nullish().describe("Marks the sandbox; the client starts the MCP gateway itself"),
  volumeMounts: volumeMounts.nullish(),
  iam: iam.nullish().describe("Identity tokens that network.rules can insert"),
  ...createHeaderFields,
};

/** Returns false if traffic would resume a sandbox that is not paused with its memory at its timeout. */
function resumesOnlyPaused(input: { autoPause: boolean; autoPauseMemory: boolean; autoResume?: { enabled: boolean } | null | undefined }): boolean {
  return input.autoResume?.enabled !== true || (input.autoPause && input.autoPauseMemory);
}
function sleepsOnlyWaking(input: { idlePauseSeconds?: number | null | undefined; autoResume?: { enabled: boolean } | null | undefined }): boolean {
  return (input.idlePauseSeconds ?? 0) === 0 || input.autoResume?.enabled === true;
}
const needsAutoResume = { message: 'idlePauseSeconds: needs autoPause: true and autoResume: {"enabled": true}, so that requests bring the sandbox back' };
const needsAutoPause = { message: "autoResume: needs autoPause: true, and autoPauseMemory must not be false" };

export const listedSandbox = z.object({
  sandboxID: z.string(),
  templateID: z.string(),
  clientID: z.string(),
  alias: z.string().optional(),
  startedAt: z.string().describe("RFC 3339"),
  endAt: z.string().describe("RFC 3339"),
  cpuCount: z.number().int(),
  memoryMB: z.number().int(),
  diskSizeMB: z.number().int(),
  state: z.enum(["running", "paused"]),
  envdVersion: z.string(),
  metadata: z.record(z.string(), z.string()).optional(),
  volumeMounts: z.array(volumeMount).optional(),
  parentSandboxID: z.string().optional().describe("Of a fork: the sandbox it was copied from"),
  forkDepth: z.number().int().describe("0, or one more than that of the sandbox it was forked from"),
  tenant: z.string().optional().describe("The tenant whose key created it; absent: the deployment's own key"),
});
export type ListedSandbox = z.output<typeof listedSandbox>;

export const sandboxDetail = listedSandbox.extend({
  envdAccessToken: z.string().optional(),
  trafficAccessToken: z.string().nullish(),
  allowInternetAccess: z.boolean().nullish(),
  domain: z.string().nullish(),
  network: shownNetwork.optional(),
  pauseMode: z.enum(["full", "filesystem"]).optional().describe("Of a paused sandbox: what it kept"),
  idlePauseSeconds: z.number().int().optional().describe("Idle seconds until it is paused, also by the node's setting; 0 or absent: never"),
  lifecycle: z.object({ autoResume: z.boolean(), onTimeout: z.enum(["kill", "pause"]) }),
});
export type SandboxDetail = z.output<typeof sandboxDetail>;

const createFailures = [
  "INVALID_REQUEST",
  "UNAUTHENTICATED",
  "TEMPLATE_NOT_FOUND",
  "VOLUME_NOT_FOUND",
  "REQUEST_IN_FLIGHT",
  "IDEMPOTENCY_KEY_REUSED",
  "KEY_ELSEWHERE",
  "TOO_MANY_REQUESTS",
  "SANDBOX_START_FAILED",
  "CAPACITY_EXHAUSTED",
  "SHUTTING_DOWN",
  "TIMED_OUT",
  "DISK_FULL",
  "QUARANTINED",
  "SNAPSHOT_UNSUITABLE",
  "OBJECTS_UNAVAILABLE",
  "SERVER_UNREACHABLE",
] as const;
const onSandbox = ["INVALID_REQUEST", "UNAUTHENTICATED", "SANDBOX_NOT_FOUND", "QUARANTINED", "SANDBOX_CHANGING_STATE"] as const;

export const createSandbox = operation({
  name: "createSandbox",
  method: "POST",
  path: "/v2/sandboxes",
  summary: "Creates a sandbox. Always secure: envd demands envdAccessToken",
  input: z
    .object({ ...createMembers, timeout: seconds.min(1).default(300) })
    .refine(resumesOnlyPaused, needsAutoPause)
    .refine(sleepsOnlyWaking, needsAutoResume),
  output: sandboxAnswer,
  headers: createHeaders,
  success: 201,
  credential: "apiKey",
  failures: [...createFailures, "NOT_OFFERED"],
});

export const createSandboxV1 = operation({
  ...createSandbox,
  name: "createSandboxV1",
  path: "/sandboxes",
  summary: "Creates a sandbox; secure only when asked",
  input: z
    .object({
      ...createMembers,
      timeout: seconds.min(1).default(15),
      secure: z
        .boolean()
        .nullish()
        .transform((value) => value ?? false),
    })
    .refine(resumesOnlyPaused, needsAutoPause)
    .refine(sleepsOnlyWaking, needsAutoResume),
});

const metadataFilter = z
  .string()
  .max(64 * 1024)
  .optional()
  .describe("key=value pairs joined by &, percent-encoded");

export const listSandboxes = operation({
  name: "listSandboxes",
  method: "GET",
  path: "/v2/sandboxes",
  summary: "Lists sandboxes page by page; the header x-next-token names the next page",
  input: z.object({
    metadata: metadataFilter,
    state: z
      .string()
      .regex(/^(running|paused)(,(running|paused))*$/, "state: running, paused, or both joined by a comma")
      .optional(),
    startedAfter: z.iso.datetime({ offset: true }).optional(),
    template: z.string().min(1).max(limits.nameLength).optional(),
    order: z.enum(["asc", "desc"]).default("desc"),
    limit: z.coerce.number().int().min(1).max(limits.listPage).default(limits.listPage),
    nextToken: z.string().max(512).optional(),
  }),
  output: z.array(listedSandbox),
  success: 200,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED"],
});

export const listSandboxesV1 = operation({
  name: "listSandboxesV1",
  method: "GET",
  path: "/sandboxes",
  summary: "Lists the running sandboxes",
  input: z.object({ metadata: metadataFilter }),
  output: z.array(listedSandbox),
  success: 200,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED"],
});

export const getSandbox = operation({
  name: "getSandbox",
  method: "GET",
  path: "/sandboxes/{sandboxID}",
  summary: "One sandbox, its tokens included",
  input: z.object({ sandboxID }),
  output: sandboxDetail,
  success: 200,
  credential: "apiKey",
  failures: onSandbox,
});

export const deleteSandbox = operation({
  name: "deleteSandbox",
  method: "DELETE",
  path: "/sandboxes/{sandboxID}",
  summary: "Ends a sandbox and all in it",
  input: z.object({ sandboxID }),
  output: z.undefined(),
  success: 204,
  credential: "apiKey",
  failures: [...onSandbox, "DISK_FULL"],
});

export const setSandboxTimeout = operation({
  name: "setSandboxTimeout",
  method: "POST",
  path: "/sandboxes/{sandboxID}/timeout",
  summary: "The sandbox ends this many seconds from now; may shorten",
  input: z.object({ sandboxID, timeout: seconds }),
  output: z.undefined(),
  success: 204,
  credential: "apiKey",
  failures: [...onSandbox, "DISK_FULL", "TOO_MANY_REQUESTS"],
});

export const refreshSandbox = operation({
  name: "refreshSandbox",
  method: "POST",
  path: "/sandboxes/{sandboxID}/refreshes",
  summary: "The sandbox lives at least this many seconds from now (15 at least); never shortens",
  input: z.object({ sandboxID, duration: z.number().int().min(0).max(3600).default(15) }),
  output: z.undefined(),
  success: 204,
  credential: "apiKey",
  failures: [...onSandbox, "DISK_FULL", "TOO_MANY_REQUESTS"],
});

export const getHealth = operation({
  name: "getHealth",
  method: "GET",
  path: "/health",
  summary: "204 while the server takes requests",
  input: z.object({}),
  output: z.undefined(),
  success: 204,
  credential: "none",
  failures: ["SHUTTING_DOWN"],
});

/** All operations of a node, in the order of the API reference. */
export const nodeOperations = {
  createSandbox,
  createSandboxV1,
  listSandboxes,
  listSandboxesV1,
  getSandbox,
  deleteSandbox,
  connectSandbox,
  connectSandboxV1,
  pauseSandbox,
  resumeSandbox,
  forkSandbox,
  moveSandbox,
  setSandboxTimeout,
  refreshSandbox,
  setSandboxNetwork,
  createSnapshot,
  listSnapshots,
  getSnapshot,
  getSandboxMetrics,
  getSandboxesMetrics,
  getSandboxLogs,
  getSandboxLogsV2,
  ...template.templateOperations,
  ...webhookOperations,
  ...webhookDeliveryOperations,
  ...previewOperations,
  ...volumeOperations,
  ...secretOperations,
  ...keyOperations,
  ...tenantOperations,
  collectGarbage,
  getUsage,
  ...pullOperations,
  getHealth,
} as const;
