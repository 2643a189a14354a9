// What gateways and nodes say to each other: a node's state as a stream of lines, questions about ids, and what marks a gateway's requests.
import { z } from "zod";
import { nodeIDForm } from "./cluster-records.ts";
import { declineKey, registerKey } from "./create-keys.ts";
import { operation } from "./operation.ts";
import { sandboxDetail } from "./sandbox.ts";

/** Of the stream. A node speaks the lower one of its own and the gateway's; members that one side does not know are left out. */
export const CLUSTER_VERSION = 1;
/** A node says something at least this often. */
export const BEAT_MS = 200;

export const STREAM_PATH = "/cluster/stream";
export const FIND_PATH = "/cluster/find";
/** Parts of a checkpoint's files, for a node that takes its sandbox over. */
export const CHECKPOINT_CHUNKS_PATH = "/cluster/captures";
/** Snapshots and builds of templates, for a node that is to start them and object storage has not. */
export const OFFERS_PATH = "/cluster/offers";

/** Request headers that gateways alone may send; they count only with the right token (`gatewayToken` in kit/src/secret.ts). */
export const gatewayHeaders = { token: "svc-gateway-token", client: "svc-gateway-client" } as const;
/** On answers of a gateway that lack what these nodes hold: their names, joined by commas. */
export const MISSING_NODES_HEADER = "svc-missing-nodes";

const bytes = z.number().int().min(0);
const count = z.number().int().min(0);

export const nodeIdentity = z.object({
  nodeID: z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/),
  /** Rises with each start of the node. */
  generation: count,
  version: z.string().max(64),
  /** "" where a node does not say, or of an earlier version. */
  commit: z.string().max(64).default(""),
  /** The program that memory is checkpointed with, by its content; "" where its driver needs none. */
  runsc: z.string().max(64).default(""),
  /** Versions of its records: of sandboxes and of templates. */
  schema: z.string().max(64).default(""),
  /** HMACs under the secrets, not hashes of them: equal where the secrets are, and of no use to guess them. */
  fingerprints: z.object({ apiKey: z.string().max(64), seed: z.string().max(64) }),
  cpuClass: z.string().max(64),
  labels: z.record(z.string().max(64), z.string().max(256)),
  maxSandboxes: count,
  runtime: z.string().max(32),
  machine: z.object({ cpuCount: count, cpuArchitecture: z.string(), cpuFamily: z.string(), cpuModel: z.string(), cpuModelName: z.string() }),
  /** Snapshots and templates that it lacks it fetches from the nodes that have them: there is no object storage. */
  fetchesFromNodes: z.boolean().default(false),
  /** It serves `settleNames` and `countSpawns`. */
  settlesNames: z.boolean().default(false),
  /** It serves `endSandbox`. */
  endsSandboxes: z.boolean().default(false),
});
export type NodeIdentity = z.output<typeof nodeIdentity>;

export const nodeLoad = z.object({
  /** Creates, forks and resumes under way, those that wait among them. */
  starting: count,
  /** Of these, the ones that wait to be admitted. */
  waiting: count,
  /** Warm sandboxes, by the name of their template. */
  pools: z.record(z.string(), count),
  /** `reserved`: the limits of what runs; `used`: what it takes, pages that copies share counted once; `available`: the kernel's word. */
  memory: z.object({ totalBytes: bytes, availableBytes: bytes, reservedBytes: bytes, usedBytes: bytes }),
  allocatedCPU: z.number().min(0),
  cpuPercent: z.number().min(0),
  disk: z.object({ totalBytes: bytes, usedBytes: bytes }),
  isDraining: z.boolean(),
  /** Its clock is so many milliseconds ahead of the deployment's; absent where that was not measured. */
  clockSkewMs: z.number().optional(),
  /** That follow this node's stream; a node of an earlier version does not say. */
  gateways: count.default(1),
});
export type NodeLoad = z.output<typeof nodeLoad>;

/** Something sandboxes start from; `names` are all it is found by besides its id. */
export const heldTemplate = z.object({
  templateID: z.string(),
  names: z.array(z.string()),
  kind: z.enum(["template", "snapshot"]),
  /** false: no build of it is ready. */
  isReady: z.boolean(),
  memoryMB: count,
  /** Of a template: its builds that are in object storage, where other nodes fetch them. */
  builds: z.array(z.string()).default([]),
  /** Other nodes can fetch it from this one. */
  isOffered: z.boolean().default(false),
  /** Of a snapshot that was fetched: the node that took it. That one alone decides what its names mean, and whether it still exists. */
  originNodeID: z.string().max(63).optional(),
  /** Of a snapshot: of two with one name, the newer one bears it. */
  createdAtMs: z.number().default(0),
});
export type HeldTemplate = z.output<typeof heldTemplate>;

/** What the name of a snapshot means, as a node heard last. */
export const nameRecord = z.object({
  /** name:tag */
  name: z.string().max(256),
  /** Of two records of one name, the later one holds: milliseconds of a wall clock, and always later than what the node knew of the name. */
  atMs: z.number().int().min(0),
  /** The snapshot that bears it; "": none, the one that bore it was deleted. */
  snapshotID: z.string().max(64),
  /** The node that gave it. */
  nodeID: z.string().max(63),
});
export type NameRecord = z.output<typeof nameRecord>;

/** The same on every node and gateway, whatever came first. */
export function isLater(a: NameRecord, b: NameRecord | undefined): boolean {
  return b === undefined || a.atMs > b.atMs || (a.atMs === b.atMs && a.snapshotID > b.snapshotID);
}

/** Builds that were fetched from object storage or from another node. Which of them a name means, the node that built them says. */
export const copiedTemplate = z.object({ templateID: z.string(), name: z.string(), memoryMB: count, builds: z.array(z.string()) });
export type CopiedTemplate = z.output<typeof copiedTemplate>;

/** Answer of GET /cluster/offers?asked=ID|NAME|NAME:TAG: the snapshot or build that it means on this node; by a name only what was made here. */
export const offerAnswer = z.object({
  offer: z
    .object({
      id: z.string().max(64),
      isOwn: z.boolean(),
      /** Of a copy: the node that made it, where that is known. */
      originNodeID: z.string().max(63).optional(),
      createdAtMs: z.number(),
    })
    .optional(),
  /** It was made here and deleted; false where nothing is known of it, either, as in a home that was restored from a backup. */
  wasDeleted: z.boolean().default(false),
  /** Of a snapshot's name: what this node heard of it last. */
  named: nameRecord.optional(),
});
export type OfferAnswer = z.output<typeof offerAnswer>;

/** Ids by what becomes of them; a sandbox that another line names moves there. */
const sandboxIDs = z.object({
  running: z.array(z.string()),
  paused: z.array(z.string()),
  gone: z.array(z.string()),
  /** On their way from or to this node: until another line says that they run, or are paused, at one of the two. */
  leaving: z.array(z.string()).default([]),
});

/**
 * One JSON object a line: first all there is, then each change as it happens, and a beat every BEAT_MS.
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
  /** Those that changed. */
  z.object({ kind: z.literal("names"), names: z.array(nameRecord) }),
  z.object({ kind: z.literal("beat"), load: nodeLoad }),
]);
export type ClusterFrame = z.output<typeof clusterFrame>;
export type StateFrame = Extract<ClusterFrame, { kind: "state" }>;
export type SandboxIDs = z.output<typeof sandboxIDs>;

/** A line longer than this is refused: 100,000 sandboxes take 3 MiB. */
export const MAX_FRAME_BYTES = 64 * 1024 * 1024;

/** Query of GET /cluster/stream; `domain` is where the gateway's clients find sandboxes, for a node that has no setting for it. */
export const streamQuery = z.object({
  version: z.coerce.number().int().min(1),
  domain: z
    .string()
    .regex(/^[a-z0-9.-]+(:\d{1,5})?$/)
    .optional(),
});

/** Query of GET /cluster/find, one of them: what a gateway knows from no stream, and a node may. */
export const findQuery = z.object({
  sandboxID: z.string().max(64).optional(),
  templateID: z.string().max(128).optional(),
  /** Of gateways before `create-keys.ts`. */
  idempotencyKey: z.string().max(255).optional(),
  /** A file URL or a look at envd's health that carries no id: its path and query, with its X-Access-Token where it has one. */
  target: z.string().max(32_768).optional(),
  isWrite: z.enum(["true", "false"]).optional(),
  token: z.string().max(256).optional(),
});
export type FindQuery = z.output<typeof findQuery>;

/** Asked of a node by another one, or by a gateway. */
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

/** Asked of a node by a gateway. */
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

/** Asked of a node by a gateway. */
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
/** Asked of a node by a gateway. */
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

/** Asked of a node by a gateway. */
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

/** Asked of a node by a gateway. */
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

/** What nodes serve to each other and to gateways. */
export const clusterOperations = { takeSandbox, endSandbox, readSandbox, dropTemplate, settleNames, countSpawns, registerKey, declineKey } as const;

/** `found` for a sandbox that ended within the hour, too: its node knows why. `buildID`: what the name of a template means now. */
export const findAnswer = z.object({ found: z.boolean(), sandboxID: z.string().optional(), buildID: z.string().optional() });
export type FindAnswer = z.output<typeof findAnswer>;
