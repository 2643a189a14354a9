// The protocol between gateways and nodes: a node's state as a stream of lines, queries for ids, and the headers of a gateway's requests.
// Longer than 300 lines: one table of what nodes and gateways serve each other.
import { z } from "zod";
import { stageBackup } from "./backup.ts";
import { nodeIDForm } from "./cluster-records.ts";
import { declineKey, registerKey } from "./create-keys.ts";
import { operation } from "./operation.ts";
import { settlePreviews } from "./previews.ts";
import { sandboxDetail } from "./sandbox.ts";
import { settleSecrets } from "./secrets.ts";
import { settleWebhooks } from "./webhooks.ts";

/** The version of the stream. A node uses the lower one of its own and the gateway's; unknown members are ignored. */
export const CLUSTER_VERSION = 1;
/** A node sends a line at least this often. */
export const BEAT_MS = 200;

export const STREAM_PATH = "/cluster/stream";
export const FIND_PATH = "/cluster/find";
/** Serves parts of a checkpoint's files to a node that takes over its sandbox. */
export const CHECKPOINT_CHUNKS_PATH = "/cluster/captures";
/** Serves snapshots and template builds that object storage does not have to nodes that start sandboxes from them. */
export const OFFERS_PATH = "/cluster/offers";

/** Request headers that only gateways may send; they are valid only with the right token (`gatewayToken` in kit/src/secret.ts). */
export const gatewayHeaders = { token: "svc-gateway-token", client: "svc-gateway-client", scheme: "svc-gateway-scheme" } as const;
/** Set on a gateway's answers that are incomplete because these nodes could not be queried: their names, joined by commas. */
export const MISSING_NODES_HEADER = "svc-missing-nodes";

const bytes = z.number().int().min(0);
const count = z.number().int().min(0);

export const nodeIdentity = z.object({
  nodeID: z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/),
  /** Increases with each start of the node. */
  generation: count,
  version: z.string().max(64),
  /** Empty if the node does not report it, or runs an earlier version. */
  commit: z.string().max(64).default(""),
  /** The hash of the runsc with which this node checkpoints memory; empty if its driver does not use runsc. */
  runsc: z.string().max(64).default(""),
  /** The schema versions of its sandbox and template records. */
  schema: z.string().max(64).default(""),
  /** HMACs under the secrets instead of hashes of them: equal where the secrets are equal, but useless for guessing them. */
  fingerprints: z.object({ apiKey: z.string().max(64), seed: z.string().max(64) }),
  cpuClass: z.string().max(64),
  labels: z.record(z.string().max(64), z.string().max(256)),
  maxSandboxes: count,
  runtime: z.string().max(32),
  machine: z.object({ cpuCount: count, cpuArchitecture: z.string(), cpuFamily: z.string(), cpuModel: z.string(), cpuModelName: z.string() }),
  /** It fetches missing snapshots and templates from the nodes that have them, since there is no object storage. */
  fetchesFromNodes: z.boolean().default(false),
  /** It serves `settleNames` and `countSpawns`. */
  settlesNames: z.boolean().default(false),
  /** It serves volumes. */
  hasVolumes: z.boolean().default(false),
  /** It serves `settleWebhooks`. */
  settlesWebhooks: z.boolean().default(false),
  /** It serves `settleSecrets`. */
  settlesSecrets: z.boolean().default(false),
  /** It serves `settlePreviews`. */
  settlesPreviews: z.boolean().default(false),
  /** It serves `endSandbox`. */
  endsSandboxes: z.boolean().default(false),
});
export type NodeIdentity = z.output<typeof nodeIdentity>;

export const nodeLoad = z.object({
  /** Creates, forks and resumes in progress, including the waiting ones. */
  starting: count,
  /** The number of these that wait for admission. */
  waiting: count,
  /** The number of warm sandboxes by the name of their template. */
  pools: z.record(z.string(), count),
  /** `reserved`: the limits of all running sandboxes; `used`: their memory, with shared pages counted once; `available`: as the kernel reports it. */
  memory: z.object({ totalBytes: bytes, availableBytes: bytes, reservedBytes: bytes, usedBytes: bytes }),
  allocatedCPU: z.number().min(0),
  cpuPercent: z.number().min(0),
  disk: z.object({ totalBytes: bytes, usedBytes: bytes }),
  isDraining: z.boolean(),
  /** The number of milliseconds by which its clock is ahead of the deployment's; absent if that was not measured. */
  clockSkewMs: z.number().optional(),
  /** The number of gateways that follow this node's stream; a node of an earlier version does not report it. */
  gateways: count.default(1),
  /** Counts the changes of its previews since its start, so that every gateway reads them at once. */
  previewChanges: count.optional(),
});
export type NodeLoad = z.output<typeof nodeLoad>;

/** A template or snapshot that sandboxes start from; it is found by its id and by `names` only. */
export const heldTemplate = z.object({
  templateID: z.string(),
  names: z.array(z.string()),
  kind: z.enum(["template", "snapshot"]),
  /** false if no build of it is ready. */
  isReady: z.boolean(),
  memoryMB: count,
  cpuCount: z.number().default(0),
  diskSizeMB: count.default(0),
  /** For a template: its builds that are in object storage, where other nodes fetch them. */
  builds: z.array(z.string()).default([]),
  /** true if other nodes can fetch it from this one. */
  isOffered: z.boolean().default(false),
  /** For a snapshot: the tenant that it belongs to; absent: the deployment itself. */
  tenant: z.string().optional(),
  /** For a fetched snapshot: the node that took it. Only that node decides which names it has and whether it still exists. */
  originNodeID: z.string().max(63).optional(),
  /** For a snapshot: if two have the same name, the newer one gets it. */
  createdAtMs: z.number().default(0),
});
export type HeldTemplate = z.output<typeof heldTemplate>;

/** The snapshot that a name refers to, as this node last learned it. */
export const nameRecord = z.object({
  /** name:tag */
  name: z.string().max(256),
  /** Milliseconds of a wall clock, always later than the record that the node knew before; the later one of two records wins. */
  atMs: z.number().int().min(0),
  /** The snapshot with this name; empty if there is none because it was deleted. */
  snapshotID: z.string().max(64),
  /** The node that assigned the name. */
  nodeID: z.string().max(63),
});
export type NameRecord = z.output<typeof nameRecord>;

/** Orders records the same way on every node and gateway, in whatever order they arrive. */
export function isLater(a: NameRecord, b: NameRecord | undefined): boolean {
  return b === undefined || a.atMs > b.atMs || (a.atMs === b.atMs && a.snapshotID > b.snapshotID);
}

/** Builds that were fetched from object storage or from another node. Only the node that built them decides which build a name refers to. */
export const copiedTemplate = z.object({ templateID: z.string(), name: z.string(), memoryMB: count, builds: z.array(z.string()) });
export type CopiedTemplate = z.output<typeof copiedTemplate>;

/** Answer of GET /cluster/offers?asked=ID|NAME|NAME:TAG: the snapshot or build that it refers to on this node; a name finds only what was made here. */
export const offerAnswer = z.object({
  offer: z
    .object({
      id: z.string().max(64),
      isOwn: z.boolean(),
      /** For a copy: the node that made it, if known. */
      originNodeID: z.string().max(63).optional(),
      createdAtMs: z.number(),
    })
    .optional(),
  /** true if it was made here and deleted. false also if nothing is known about it, as after a restore of the home from a backup. */
  wasDeleted: z.boolean().default(false),
  /** For a snapshot's name: the last record that this node has of it. */
  named: nameRecord.optional(),
});
export type OfferAnswer = z.output<typeof offerAnswer>;

/** A tenant's sandbox as quotas count it. */
export const ownedSandbox = z.object({ tenant: z.string(), processors: z.number(), memoryMB: count, diskMB: count });
export type OwnedSandbox = z.output<typeof ownedSandbox>;

/** Sandbox ids by their new state; if a later line lists a sandbox under another state, that replaces this one. */
const sandboxIDs = z.object({
  running: z.array(z.string()),
  paused: z.array(z.string()),
  gone: z.array(z.string()),
  /** Sizes of those that belong to a tenant, by id; those of the deployment itself are left out. */
  owned: z.record(z.string(), ownedSandbox).default({}),
  /** Being moved from or to this node, until another line reports them as running or paused on one of the two nodes. */
  leaving: z.array(z.string()).default([]),
});

/**
 * One JSON object per line: first the whole state, then each change as it happens, and a beat every BEAT_MS.
 *
 *   state ─▶ change | templates | names | beat ─▶ …
 */
export const clusterFrame = z.discriminatedUnion("kind", [
  z.object({
    kind: z.literal("state"),
    version: z.number().int(),
    node: nodeIdentity,
    load: nodeLoad,
    sandboxes: sandboxIDs,
    templates: z.array(heldTemplate),
    copies: z.array(copiedTemplate).default([]),
    names: z.array(nameRecord).default([]),
  }),
  z.object({ kind: z.literal("change"), sandboxes: sandboxIDs }),
  z.object({ kind: z.literal("templates"), templates: z.array(heldTemplate), copies: z.array(copiedTemplate).default([]) }),
  /** The records that changed. */
  z.object({ kind: z.literal("names"), names: z.array(nameRecord) }),
  z.object({ kind: z.literal("beat"), load: nodeLoad }),
]);
export type ClusterFrame = z.output<typeof clusterFrame>;
export type StateFrame = Extract<ClusterFrame, { kind: "state" }>;
export type SandboxIDs = z.output<typeof sandboxIDs>;

/** Longer lines are refused; 100,000 sandboxes take 3 MiB. */
export const MAX_FRAME_BYTES = 64 * 1024 * 1024;

/** Query of GET /cluster/stream; `domain` is the domain under which the gateway's clients reach sandboxes, for nodes that have no setting for it. */
export const streamQuery = z.object({
  version: z.coerce.number().int().min(1),
  domain: z
    .string()
    .regex(/^[a-z0-9.-]+(:\d{1,5})?$/)
    .optional(),
});

/** Query of GET /cluster/find, with one of these members: ids that no stream contains but that a node may know. */
export const findQuery = z.object({
  sandboxID: z.string().max(64).optional(),
  templateID: z.string().max(128).optional(),
  volumeID: z.string().max(64).optional(),
  /** Sent by gateways that are older than `create-keys.ts`. */
  idempotencyKey: z.string().max(255).optional(),
  /** The path and query, with the X-Access-Token if there is one, of a file URL or an envd health check that carries no sandbox id. */
  target: z.string().max(32_768).optional(),
  isWrite: z.enum(["true", "false"]).optional(),
  token: z.string().max(256).optional(),
});
export type FindQuery = z.output<typeof findQuery>;

/** Sent to a node by another node or by a gateway. */
export const takeSandbox = operation({
  name: "takeSandbox",
  method: "POST",
  path: "/cluster/take",
  summary: "Takes over a paused sandbox that its node offers, or whose node was stopped or declared dead; it is on this node when this is answered",
  input: z.object({
    sandboxID: z.string().regex(/^i[a-z0-9]{19,62}$/, "expected a sandbox's id"),
    timeoutSeconds: z.number().int().min(1).optional().describe("It is resumed, and lives for so long"),
  }),
  output: z.object({ importMs: count, resumeMs: count, resumeFailed: z.string().optional().describe("Why it is paused there") }),
  success: 200,
  credential: "apiKey",
  failures: [
    "UNAUTHENTICATED",
    "INVALID_REQUEST",
    "SANDBOX_NOT_FOUND",
    "SANDBOX_CHANGING_STATE",
    "NODE_LOST",
    "SNAPSHOT_UNSUITABLE",
    "SNAPSHOT_DAMAGED",
    "CAPACITY_EXHAUSTED",
    "TOO_MANY_REQUESTS",
    "DISK_FULL",
    "OBJECTS_UNAVAILABLE",
    "ETCD_UNAVAILABLE",
  ],
});

/** Sent to a node by a gateway. */
export const endSandbox = operation({
  name: "endSandbox",
  method: "POST",
  path: "/cluster/end",
  summary: "Ends a sandbox of a node that was stopped or declared dead; nothing of it is fetched, so that it need not fit here",
  input: z.object({
    sandboxID: z.string().regex(/^i[a-z0-9]{19,62}$/, "expected a sandbox's id"),
    nodeID: nodeIDForm.optional().describe("The node that was declared dead with it, where it was not exported"),
  }),
  output: z.undefined(),
  success: 204,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "INVALID_REQUEST", "SANDBOX_NOT_FOUND", "SANDBOX_CHANGING_STATE", "NODE_LOST", "ETCD_UNAVAILABLE"],
});

/** Sent to a node by a gateway. */
export const dropTemplate = operation({
  name: "dropTemplate",
  method: "POST",
  path: "/cluster/drop-template",
  summary: "Drops this node's copies of a template or snapshot that another node made and that was deleted there",
  input: z.object({
    templateID: z.string().min(1).max(200).describe("Its id or name"),
    isOrphan: z.boolean().default(false).describe("The node that built it is gone: object storage forgets it, too"),
  }),
  output: z.object({ dropped: z.boolean().describe("false: there was nothing of it") }),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "INVALID_REQUEST", "SNAPSHOT_UNSUITABLE", "OBJECTS_UNAVAILABLE"],
});

export const MAX_SETTLED_NAMES = 1_000;
/** Sent to a node by a gateway. */
export const settleNames = operation({
  name: "settleNames",
  method: "POST",
  path: "/cluster/names",
  summary: "Tells this node what names of snapshots mean on other nodes: its own snapshots that bore them lose them for good",
  input: z.object({ names: z.array(nameRecord).max(MAX_SETTLED_NAMES) }),
  output: z.object({ changed: count.describe("Of how many it knew less") }),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "INVALID_REQUEST", "DISK_FULL"],
});

/** Sent to a node by a gateway. */
export const countSpawns = operation({
  name: "countSpawns",
  method: "POST",
  path: "/cluster/spawns",
  summary: "Counts the sandboxes that were started on this node from templates that it fetched",
  input: z.object({}),
  output: z.array(z.object({ templateID: z.string(), spawnCount: count, lastSpawnedAt: z.string().nullable() })),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED"],
});

/** Sent to a node by a gateway. */
export const readSandbox = operation({
  name: "readSandbox",
  method: "POST",
  path: "/cluster/read",
  summary: "Reads the details of a paused sandbox of another node from object storage; it stays what and where it is, and etcd is not asked",
  input: z.object({ manifest: z.string().max(256).describe("As etcd's record of the sandbox names it") }),
  output: sandboxDetail,
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "INVALID_REQUEST", "SNAPSHOT_NOT_FOUND", "SNAPSHOT_UNSUITABLE", "SNAPSHOT_DAMAGED", "OBJECTS_UNAVAILABLE"],
});

/** The operations that nodes serve to each other and to gateways. */
export const clusterOperations = {
  takeSandbox,
  endSandbox,
  readSandbox,
  dropTemplate,
  settleNames,
  countSpawns,
  settleWebhooks,
  settleSecrets,
  settlePreviews,
  registerKey,
  declineKey,
  stageBackup,
} as const;

/**
 * `found` is also true for a sandbox that ended within the last hour, since its node knows the reason. `buildID`: the build that a template's name refers to
 * now.
 */
export const findAnswer = z.object({ found: z.boolean(), sandboxID: z.string().optional(), buildID: z.string().optional() });
export type FindAnswer = z.output<typeof findAnswer>;
