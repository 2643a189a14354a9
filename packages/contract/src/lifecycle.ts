// The operations on an existing sandbox: pause, resume, snapshot, fork, move.
import { z } from "zod";
import { limits, sandboxAnswer, sandboxID, seconds } from "./fields.ts";
import { operation } from "./operation.ts";

const onSandbox = ["INVALID_REQUEST", "UNAUTHENTICATED", "SANDBOX_NOT_FOUND", "QUARANTINED", "SANDBOX_CHANGING_STATE"] as const;
const onCheckpoint = [
  ...onSandbox,
  "SANDBOX_NOT_RUNNING",
  "CHECKPOINT_UNAVAILABLE",
  "CHECKPOINT_FAILED",
  "DISK_FULL",
  "TOO_MANY_REQUESTS",
  "TIMED_OUT",
  "OBJECTS_UNAVAILABLE",
] as const;
const onRestore = [
  ...onSandbox,
  "SANDBOX_MOVED",
  "ETCD_UNAVAILABLE",
  "SNAPSHOT_DAMAGED",
  "SNAPSHOT_UNSUITABLE",
  "SANDBOX_START_FAILED",
  "CAPACITY_EXHAUSTED",
  "TOO_MANY_REQUESTS",
  "TIMED_OUT",
  "DISK_FULL",
] as const;

const memory = z
  .boolean()
  .nullish()
  .transform((value) => value ?? true);

export const pauseSandbox = operation({
  name: "pauseSandbox",
  method: "POST",
  path: "/sandboxes/{sandboxID}/pause",
  summary: "Keeps the sandbox on disk and frees what it uses; memory false keeps its files alone",
  input: z.object({ sandboxID, memory, requireHealthyGuest: z.boolean().nullish() }),
  output: z.undefined(),
  success: 204,
  credential: "apiKey",
  failures: [...onCheckpoint, "SANDBOX_PAUSED", "GUEST_UNRESPONSIVE"],
});

export const resumeSandbox = operation({
  name: "resumeSandbox",
  method: "POST",
  path: "/sandboxes/{sandboxID}/resume",
  summary: "Resumes a paused sandbox",
  input: z.object({ sandboxID, timeout: seconds.min(1).default(15), autoPause: z.boolean().nullish() }),
  output: sandboxAnswer,
  success: 201,
  credential: "apiKey",
  failures: [...onRestore, "SANDBOX_RUNNING"],
});

export const connectSandbox = operation({
  name: "connectSandbox",
  method: "POST",
  path: "/v2/sandboxes/{sandboxID}/connect",
  summary: "Answers as create does; never shortens the time left of a running sandbox, and resumes a paused one (201)",
  input: z.object({ sandboxID, timeout: seconds.default(300), memory: memory.describe("false: a paused sandbox starts anew from its files") }),
  output: sandboxAnswer,
  success: 200,
  otherSuccess: [201],
  credential: "apiKey",
  failures: onRestore,
});

export const connectSandboxV1 = operation({
  ...connectSandbox,
  name: "connectSandboxV1",
  path: "/sandboxes/{sandboxID}/connect",
  input: z.object({ sandboxID, timeout: seconds, memory }),
});

export const MAX_FORKS = 100;

export const forkSandbox = operation({
  name: "forkSandbox",
  method: "POST",
  path: "/sandboxes/{sandboxID}/fork",
  summary: "Copies a running sandbox, memory included, into `count` new ones from one checkpoint; a result or an error per child",
  input: z.object({
    sandboxID,
    timeout: seconds.min(1).nullish().describe("Seconds each child lives; absent: as long as its source was given"),
    count: z
      .number()
      .int()
      .min(1)
      .max(MAX_FORKS)
      .nullish()
      .transform((value) => value ?? 1),
  }),
  output: z.array(
    z.union([
      z.object({ sandbox: sandboxAnswer }),
      z.object({ error: z.object({ code: z.number().int(), message: z.string(), error_code: z.string().optional() }) }),
    ]),
  ),
  success: 201,
  credential: "apiKey",
  failures: onCheckpoint,
});

/** A snapshot's name, or `name:tag`. */
export const snapshotName = z
  .string()
  .max(limits.nameLength)
  .regex(/^[a-z0-9][a-z0-9_.-]*(:[A-Za-z0-9][A-Za-z0-9_.-]*)?$/, "a name is lower-case letters, digits, '-', '_' and '.', with ':TAG' behind it if wanted");

export const snapshotInfo = z.object({
  snapshotID: z.string(),
  names: z.array(z.string()).describe("name:tag, each of which can be given as templateID"),
  sandboxID: z.string().describe("The sandbox it was taken of"),
  templateID: z.string(),
  memory: z.boolean().describe("false: its files alone"),
  cpuCount: z.number().int(),
  memoryMB: z.number().int(),
  diskSizeMB: z.number().int(),
  sizeBytes: z.number().int().describe("On disk, layers shared with others not counted"),
  createdAt: z.string(),
  tenant: z.string().optional().describe("The tenant whose sandbox it was taken of; absent: the deployment's own key"),
  originNodeID: z.string().optional().describe("Of one that its node fetched: the node that took it, and that decides about its names"),
});
export type SnapshotInfo = z.output<typeof snapshotInfo>;

export const createSnapshot = operation({
  name: "createSnapshot",
  method: "POST",
  path: "/sandboxes/{sandboxID}/snapshots",
  summary: "Takes a snapshot of a running sandbox, which goes on; a name moves to the newest snapshot that bears it",
  input: z.object({ sandboxID, name: snapshotName.nullish(), memory }),
  output: snapshotInfo,
  success: 201,
  credential: "apiKey",
  failures: onCheckpoint,
});

export const listSnapshots = operation({
  name: "listSnapshots",
  method: "GET",
  path: "/snapshots",
  summary: "Lists snapshots, newest first, page by page; also by a source sandbox that is gone",
  input: z.object({
    sandboxID: z.string().min(1).max(64).optional(),
    name: z.string().min(1).max(limits.nameLength).optional().describe("A name, with or without its tag"),
    limit: z.coerce.number().int().min(1).max(limits.listPage).default(limits.listPage),
    nextToken: z.string().max(512).optional(),
  }),
  output: z.array(snapshotInfo),
  success: 200,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED"],
});

export const getSnapshot = operation({
  name: "getSnapshot",
  method: "GET",
  path: "/snapshots/{snapshotID}",
  summary: "One snapshot, by id or name",
  input: z.object({ snapshotID: z.string().min(1).max(limits.nameLength) }),
  output: snapshotInfo,
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "SNAPSHOT_NOT_FOUND"],
});

export const movedSandbox = z.object({
  sandboxID: z.string(),
  fromNodeID: z.string(),
  nodeID: z.string().describe("Where it is now"),
  state: z.enum(["running", "paused"]),
  reason: z.string().optional().describe("Why one that ran could not be resumed there"),
  stoodStillMs: z.number().int().min(0).describe("From the begin of its pause until it ran again; the stages add up to it"),
  pauseMs: z.number().int().min(0),
  exportMs: z.number().int().min(0).describe("Until all of it was in object storage"),
  importMs: z.number().int().min(0),
  resumeMs: z.number().int().min(0),
  otherMs: z.number().int().min(0).describe("Agreeing on its owner"),
});
export type MovedSandbox = z.output<typeof movedSandbox>;

export const moveSandbox = operation({
  name: "moveSandbox",
  method: "POST",
  path: "/sandboxes/{sandboxID}/move",
  summary: "Moves a sandbox to another node of the deployment: paused, exported, and resumed there if it ran",
  // The object is strict, since with a misspelt nodeID the sandbox would move to an arbitrary node.
  input: z.strictObject({ sandboxID, nodeID: z.string().min(1).max(256).nullish().describe("Its id or URL; absent: one that has room") }),
  output: movedSandbox,
  success: 200,
  credential: "apiKey",
  failures: [
    ...onCheckpoint,
    "SNAPSHOT_UNSUITABLE",
    "SNAPSHOT_DAMAGED",
    "CAPACITY_EXHAUSTED",
    "NODE_NOT_FOUND",
    "NODE_LOST",
    "ETCD_UNAVAILABLE",
    "SANDBOX_MOVED",
  ],
});
