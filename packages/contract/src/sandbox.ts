// The public API of the sandbox platform as a table: what the E2B API's clients call, in both generations.
import { z } from "zod";
import { operation } from "./operation.ts";
import { listTemplates } from "./template.ts";

export const limits = {
  timeoutMaxSeconds: 7 * 24 * 3600,
  metadataKeys: 64,
  metadataBytes: 16 * 1024,
  envKeys: 256,
  envBytes: 128 * 1024,
  nameLength: 128,
  listPage: 100,
} as const;

const sandboxID = z.string().min(1).max(64).describe("Identifier of the sandbox");
const seconds = z.number().int().min(0).max(limits.timeoutMaxSeconds);

/** A map of strings with a bound on its keys and on its bytes. */
function stringMap(what: string, keys: number, bytes: number) {
  return z
    .record(z.string().min(1).max(256), z.string())
    .refine((map) => Object.keys(map).length <= keys, `${what}: at most ${keys} entries`)
    .refine((map) => Buffer.byteLength(JSON.stringify(map)) <= bytes, `${what}: at most ${bytes} bytes`);
}

const envName = /^[A-Za-z_][A-Za-z0-9_]*$/;
const envVars = stringMap("envVars", limits.envKeys, limits.envBytes).refine(
  (map) => Object.entries(map).every(([name, value]) => envName.test(name) && !value.includes("\0")),
  "envVars: names are letters, digits and _, and no value holds NUL",
);

export const network = z.object({
  allowPublicTraffic: z
    .boolean()
    .nullish()
    .transform((value) => value ?? true)
    .describe("false: applications demand trafficAccessToken"),
  maskRequestHost: z
    .string()
    .min(1)
    .max(255)
    .regex(/^[A-Za-z0-9.$\-_{}:[\]]+$/)
    .optional()
    .describe("Host header that applications see; PORT in braces behind a dollar sign stands for the port"),
});

const createMembers = {
  templateID: z.string().min(1).max(limits.nameLength).describe("Template to start from: id or name"),
  autoPause: z.literal(false, "autoPause: true is not offered: a sandbox ends at its timeout").optional(),
  autoPauseMemory: z.boolean().optional(),
  autoResume: z.object({ enabled: z.literal(false, "autoResume.enabled: true is not offered") }).optional(),
  allow_internet_access: z
    .boolean()
    .nullish()
    .transform((value) => value ?? true)
    .describe("false: nothing leaves the sandbox"),
  network: network.strict().nullish(),
  metadata: stringMap("metadata", limits.metadataKeys, limits.metadataBytes).nullish(),
  envVars: envVars.nullish(),
  mcp: z.record(z.string(), z.unknown()).nullish().describe("Marks the sandbox; the client starts the MCP gateway itself"),
  volumeMounts: z.array(z.unknown()).max(0, "volumeMounts: volumes are not offered").optional(),
  iam: z.undefined("iam: workload identity is not offered").optional(),
  idempotencyKey: z
    .string()
    .regex(/^[a-z0-9-]{1,255}$/, "Idempotency-Key: 1 to 255 of a-z, 0-9 and -")
    .optional(),
};

export const sandboxAnswer = z.object({
  sandboxID: z.string(),
  templateID: z.string(),
  clientID: z.string(),
  envdVersion: z.string(),
  alias: z.string().optional(),
  envdAccessToken: z.string().optional(),
  trafficAccessToken: z.string().nullish(),
  domain: z.string().nullish(),
});
export type SandboxAnswer = z.output<typeof sandboxAnswer>;

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
});
export type ListedSandbox = z.output<typeof listedSandbox>;

export const sandboxDetail = listedSandbox.extend({
  envdAccessToken: z.string().optional(),
  trafficAccessToken: z.string().nullish(),
  allowInternetAccess: z.boolean().nullish(),
  domain: z.string().nullish(),
  network: z.object({ allowPublicTraffic: z.boolean(), maskRequestHost: z.string().optional() }).optional(),
  lifecycle: z.object({ autoResume: z.boolean(), onTimeout: z.enum(["kill", "pause"]) }),
});
export type SandboxDetail = z.output<typeof sandboxDetail>;

const headers = { idempotencyKey: "idempotency-key" } as const;
const createFailures = [
  "INVALID_REQUEST",
  "UNAUTHENTICATED",
  "TEMPLATE_NOT_FOUND",
  "REQUEST_IN_FLIGHT",
  "IDEMPOTENCY_KEY_REUSED",
  "TOO_MANY_REQUESTS",
  "SANDBOX_START_FAILED",
  "CAPACITY_EXHAUSTED",
  "SHUTTING_DOWN",
  "TIMED_OUT",
] as const;
const onSandbox = ["INVALID_REQUEST", "UNAUTHENTICATED", "SANDBOX_NOT_FOUND", "SANDBOX_CHANGING_STATE"] as const;

export const createSandbox = operation({
  name: "createSandbox",
  method: "POST",
  path: "/v2/sandboxes",
  summary: "Creates a sandbox. Always secure: envd demands envdAccessToken",
  input: z.object({ ...createMembers, timeout: seconds.min(1).default(300) }),
  output: sandboxAnswer,
  headers,
  success: 201,
  credential: "apiKey",
  failures: createFailures,
});

export const createSandboxV1 = operation({
  ...createSandbox,
  name: "createSandboxV1",
  path: "/sandboxes",
  summary: "Creates a sandbox; secure only when asked",
  input: z.object({
    ...createMembers,
    timeout: seconds.min(1).default(15),
    secure: z
      .boolean()
      .nullish()
      .transform((value) => value ?? false),
  }),
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
  failures: onSandbox,
});

const memory = z.boolean().optional();

export const connectSandbox = operation({
  name: "connectSandbox",
  method: "POST",
  path: "/v2/sandboxes/{sandboxID}/connect",
  summary: "Answers as create does, and never shortens the time left",
  input: z.object({ sandboxID, timeout: seconds.default(300), memory }),
  output: sandboxAnswer,
  success: 200,
  otherSuccess: [201],
  credential: "apiKey",
  failures: onSandbox,
});

export const connectSandboxV1 = operation({
  ...connectSandbox,
  name: "connectSandboxV1",
  path: "/sandboxes/{sandboxID}/connect",
  input: z.object({ sandboxID, timeout: seconds, memory }),
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
  failures: onSandbox,
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
  failures: onSandbox,
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

/** Everything a node serves, in the order of the API reference. */
export const nodeOperations = {
  createSandbox,
  createSandboxV1,
  listSandboxes,
  listSandboxesV1,
  getSandbox,
  deleteSandbox,
  connectSandbox,
  connectSandboxV1,
  setSandboxTimeout,
  refreshSandbox,
  listTemplates,
  getHealth,
} as const;
