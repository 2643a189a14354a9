// The public API for building templates: request, upload, build, poll.
import { z } from "zod";
import { limits } from "./fields.ts";
import { logEntry, logLevels } from "./observe.ts";
import { operation } from "./operation.ts";

export const buildStatus = z.enum(["waiting", "building", "ready", "error"]);

/** The maximum for a template; a host with fewer CPUs uses all it has, and the build's log says so. */
const MAX_CPUS = 128;
const templateID = z.string().min(1).max(limits.nameLength);
const buildID = z.uuid();
const onBuild = ["INVALID_REQUEST", "UNAUTHENTICATED", "TEMPLATE_NOT_FOUND", "BUILD_NOT_FOUND"] as const;

export const requestTemplate = operation({
  name: "requestTemplate",
  method: "POST",
  path: "/v3/templates",
  summary: "Makes a template by name, or a new build of the one that bears it; nothing is built yet",
  input: z.object({
    name: z.string().min(1).max(limits.nameLength).optional().describe("name, or name:tag"),
    alias: z.string().min(1).max(limits.nameLength).optional().describe("as name, of older clients"),
    tags: z.array(z.string().min(1).max(limits.nameLength)).max(64).nullish(),
    cpuCount: z.number().int().min(1).max(MAX_CPUS).nullish(),
    memoryMB: z
      .number()
      .int()
      .min(64)
      .max(1 << 24)
      .nullish(),
    minFreeDiskMb: z
      .number()
      .int()
      .min(0)
      .nullish()
      .describe("Disk of its sandboxes in MiB, up to template.max_disk_size_mb; 0 or absent: as what it is built from"),
    skipCache: z.boolean().nullish(),
  }),
  output: z.object({
    templateID: z.string(),
    buildID: z.string(),
    public: z.boolean(),
    names: z.array(z.string()),
    tags: z.array(z.string()),
    aliases: z.array(z.string()),
  }),
  success: 202,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED", "TOO_MANY_REQUESTS", "DISK_FULL"],
});

export const getTemplateFiles = operation({
  name: "getTemplateFiles",
  method: "GET",
  path: "/templates/{templateID}/files/{hash}",
  summary: "Whether the files of a COPY step are here, and where to put them where not",
  input: z.object({
    templateID,
    hash: z.string().regex(/^[0-9a-f]{64}$/, "64 hexadecimal characters"),
    // Clients and proxies send these headers automatically.
    host: z.string().max(255).optional().meta({ internal: true }),
    protocol: z.string().max(32).optional().meta({ internal: true }),
  }),
  headers: { host: "host", protocol: "x-forwarded-proto" },
  output: z.object({ present: z.boolean(), url: z.string().optional(), headers: z.record(z.string(), z.string()).optional() }),
  success: 201,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED", "TEMPLATE_NOT_FOUND"],
});

const secretID = z.string().regex(/^[\w.-]{1,128}$/, "a secret's id is letters, digits, '-', '_' and '.'");

/** A step of type FROM begins another stage: its argument is an image, or stage:NUMBER for the result of an earlier stage, counted from 0. */
export const buildStep = z.object({
  type: z.string().transform((type, context) => {
    const known = ["COPY", "RUN", "ENV", "WORKDIR", "USER", "FROM"] as const;
    const found = known.find((name) => name === type.toUpperCase());
    if (found !== undefined) return found;
    context.addIssue({ code: "custom", message: `step type '${type}' is not known; there are ${known.join(", ")}` });
    return z.NEVER;
  }),
  args: z
    .array(z.string().max(128 * 1024))
    .max(1024)
    .default([]),
  force: z.boolean().nullish(),
  filesHash: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .nullish(),
  from: z.string().min(1).max(512).nullish().describe("For COPY: stage:NUMBER or an image, whose files are copied instead of uploaded ones"),
  secrets: z
    .array(
      z.object({
        id: secretID,
        target: z.string().startsWith("/").max(1024).optional().describe("The file that has it; absent: /run/secrets/ID"),
        env: z
          .string()
          .regex(/^[A-Za-z_][A-Za-z0-9_]*$/)
          .optional()
          .describe("The variable that has it, instead of a file"),
        required: z.boolean().optional(),
      }),
    )
    .max(64)
    .nullish()
    .describe("For RUN: the build secrets that it sees"),
});
export type BuildStep = z.output<typeof buildStep>;

const registry = z.discriminatedUnion("type", [
  z.object({ type: z.literal("registry"), username: z.string(), password: z.string() }),
  z.object({ type: z.literal("aws"), awsAccessKeyId: z.string(), awsSecretAccessKey: z.string(), awsRegion: z.string() }),
  z.object({ type: z.literal("gcp"), serviceAccountJson: z.string() }),
]);

export const buildTemplate = operation({
  name: "buildTemplate",
  method: "POST",
  path: "/v2/templates/{templateID}/builds/{buildID}",
  summary: "Starts a build, from an image or a template, step by step",
  input: z.object({
    templateID,
    buildID,
    fromImage: z.string().min(1).max(512).nullish().describe("An OCI image's name, or debian:SUITE"),
    fromTemplate: z.string().min(1).max(limits.nameLength).nullish(),
    fromImageRegistry: registry.nullish(),
    secrets: z
      .record(secretID, z.string().max(64 * 1024))
      .nullish()
      .describe("Values that RUN steps see and no layer, log or record keeps, by id"),
    steps: z.array(buildStep).max(1000).nullish(),
    startCmd: z
      .string()
      .max(64 * 1024)
      .nullish(),
    readyCmd: z
      .string()
      .max(64 * 1024)
      .nullish(),
    force: z.boolean().nullish().describe("true: no step comes from the cache"),
    strictFiles: z.boolean().nullish().describe("true: in its sandboxes the file API reaches files with its user's rights alone"),
    dockerfile: z
      .boolean()
      .nullish()
      .describe("true: where the source names no user and no folder, steps begin as root in /; the template still belongs to `user`"),
  }),
  output: z.undefined(),
  success: 202,
  credential: "apiKey",
  failures: [...onBuild, "BUILD_CONFLICT", "TOO_MANY_REQUESTS", "DISK_FULL"],
});

export const cancelBuild = operation({
  name: "cancelBuild",
  method: "DELETE",
  path: "/templates/{templateID}/builds/{buildID}",
  summary: "Cancels a build that waits or runs; its status becomes error",
  input: z.object({ templateID, buildID }),
  output: z.undefined(),
  success: 204,
  credential: "apiKey",
  failures: [...onBuild, "BUILD_CONFLICT"],
});

export const BUILD_LOG_PAGE = 100;
const buildLogEntry = logEntry.omit({ fields: true }).extend({ step: z.string().optional() });
export type BuildLogEntry = z.output<typeof buildLogEntry>;

export const getBuildStatus = operation({
  name: "getBuildStatus",
  method: "GET",
  path: "/templates/{templateID}/builds/{buildID}/status",
  summary: "How far a build is, and at most 100 entries of its log from `logsOffset` on",
  input: z.object({
    templateID,
    buildID,
    logsOffset: z.coerce.number().int().min(0).default(0),
    limit: z.coerce.number().int().min(0).max(BUILD_LOG_PAGE).default(BUILD_LOG_PAGE),
    level: z.enum(logLevels).optional(),
  }),
  output: z.object({
    templateID: z.string(),
    buildID: z.string(),
    status: buildStatus,
    logs: z.array(z.string()),
    logEntries: z.array(buildLogEntry),
    reason: z.object({ message: z.string(), step: z.string().optional(), logEntries: z.array(buildLogEntry) }).optional(),
  }),
  success: 200,
  credential: "apiKey",
  failures: onBuild,
});

export const getBuildLogs = operation({
  name: "getBuildLogs",
  method: "GET",
  path: "/templates/{templateID}/builds/{buildID}/logs",
  summary: "A build's log from a moment on, in either direction",
  input: z.object({
    templateID,
    buildID,
    cursor: z.coerce.number().int().min(0).optional().describe("Milliseconds since 1970"),
    limit: z.coerce.number().int().min(1).max(BUILD_LOG_PAGE).default(BUILD_LOG_PAGE),
    direction: z.enum(["forward", "backward"]).default("forward"),
    level: z.enum(logLevels).optional(),
    source: z.string().max(64).optional(),
  }),
  output: z.object({ logs: z.array(buildLogEntry) }),
  success: 200,
  credential: "apiKey",
  failures: onBuild,
});
