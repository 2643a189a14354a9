// The structures of the store's RPC, as clients of release 0.3.13 encode them.
import { bool, bytes, expected, i32, i64, nothing, optional, type Schema, struct, u8, u32, u64, uuid, type ValueOf, variant, vector } from "./schema.ts";

export const segment = struct({ id: uuid, name: bytes, base: u64, sizeBytes: u64, endpoint: bytes, protocol: bytes, hostID: bytes });

/** A writer's put policy for its replicas. */
export const replicateConfig = struct({
  replicas: u64,
  nofReplicas: u64,
  dfsReplicas: u64,
  softPinAction: u8,
  softPinTtlMs: optional(u64),
  hardPin: bool,
  preferredSegments: vector(bytes),
  preferredSegment: bytes,
  preferredNofSegments: vector(bytes),
  preferSameNode: bool,
  dataType: u8,
  hostID: bytes,
  groupIDs: optional(vector(bytes)),
});

/** A NOF segment as Mooncake's clients mount it. */
export const nofSegment = struct({ id: uuid, name: bytes, base: u64, sizeBytes: u64, endpoint: bytes });
export const nofOwner = struct({ segment: uuid, client: uuid });

/** The leases that a probe takes: 0 none, 1 those of the last complete group of `candidates` keys. On the wire it has its memory layout. */
export const leasePolicy: Schema<{ readonly kind: number; readonly candidates: bigint }> = {
  literal: [0xfd, ...u8.literal, ...u64.literal, 0x89, 0x89, 0xff],
  // Only the lowest byte of `kind` counts.
  shape: { is: "struct", fields: { kind: u64, candidates: u64 } },
  widest: () => 0,
  write(to, { kind, candidates }) {
    to.u64(BigInt(kind));
    to.u64(candidates);
  },
  read: (from) => ({ kind: Number(from.u64() & 0xffn), candidates: from.u64() }),
};

const buffer = struct({ sizeBytes: u64, address: u64, protocol: bytes, endpoint: bytes });
const memory = struct({ buffer });

/** The location of a replica's bytes; the order of the cases is their index on the wire. */
const place = variant({
  memory,
  nof: memory,
  disk: struct({ path: bytes, sizeBytes: u64 }),
  localDisk: struct({ clientID: uuid, sizeBytes: u64, endpoint: bytes }),
  dfs: struct({ path: bytes, offset: u64, sizeBytes: u64, totalBytes: u64, kind: i32 }),
});

export const descriptor = struct({ id: u64, place, status: i32 });
export const replicaList = struct({ replicas: vector(descriptor), leaseMs: u64, checksum: optional(u64) });
export const objectMeta = struct({ key: bytes, checksum: optional(u64) });
export const pong = struct({ viewVersion: i64, status: i32 });
export const storageConfig = struct({ root: bytes, evictsDisk: bool, quotaBytes: u64 });
export const taskAssignment = struct({ id: uuid, type: i32, payload: bytes, createdMs: i64, maxRetries: u32 });
export const taskOutcome = struct({ id: uuid, status: i32, message: bytes });
export const offloadItem = struct({ tenant: bytes, key: bytes, sizeBytes: i64 });
export const storedObject = struct({ bucketID: i64, offset: i64, keyBytes: i64, dataBytes: i64, endpoint: bytes });
export const copyStart = struct({ source: descriptor, targets: vector(descriptor) });
export const moveStart = struct({ source: descriptor, target: optional(descriptor) });
/** One of many copies or moves; a move has one target. */
export const copyRequest = struct({ key: bytes, source: bytes, targets: vector(bytes) });
export const copyBegun = struct({ source: descriptor, targets: vector(descriptor), checksum: optional(u64) });
export const promotion = struct({ target: descriptor });
export const taskState = struct({ id: uuid, type: i32, status: i32, createdMs: i64, updatedMs: i64, clientID: uuid, message: bytes });

/** Memory for one object that is written before it has a key. */
const extent = struct({ id: u64, ranges: vector(struct({ address: u64, endpoint: bytes, protocol: bytes })) });
export const extentLease = struct({ extents: vector(extent), leaseMs: u64 });
export const commit = struct({ extent: u64, key: bytes, checksum: optional(u64) });
/** An object that a disk's owner must store, or promote to memory. The bytes lie at `address` in the owner's memory, or in its file `file`. */
const ordered = {
  tenant: bytes,
  key: bytes,
  fingerprint: bytes,
  group: bytes,
  sizeBytes: u64,
  address: u64,
  file: u64,
  task: u32,
  checksum: optional(u64),
  dataType: u8,
  hardPin: bool,
};
const order = struct(ordered);
export const disk = struct({ id: uuid, label: u32, isOurs: bool, isEnabled: bool, capacityBytes: u64, endpoint: bytes });
export const fileOf = struct({ tenant: bytes, key: bytes, file: u64 });
/** `drop`: files that no object has any more; `check`: files whose bytes a reader found wrong. */
export const diskOrders = struct({ offload: vector(order), promote: vector(order), drop: vector(u64), check: vector(fileOf) });
/** `task` is that of the order; 0 for a file that was found on the disk. */
export const storedFile = struct({
  tenant: bytes,
  key: bytes,
  fingerprint: bytes,
  group: bytes,
  sizeBytes: u64,
  file: u64,
  task: u32,
  checksum: u64,
  dataType: u8,
  hardPin: bool,
});
/** A device of the cold tier as the master knows it; `dropped` counts files without an object that its owner has not removed yet. */
export const coldDisk = struct({
  id: uuid,
  clientID: uuid,
  name: bytes,
  capacityBytes: u64,
  usedBytes: u64,
  files: u64,
  waiting: u64,
  dropped: u64,
  takesObjects: bool,
  isReadable: bool,
});
const coldFile = struct({ tenant: bytes, key: bytes, sizeBytes: u64, file: u64, isHot: bool });
export const coldFiles = struct({ next: u32, files: vector(coldFile) });
export const queued = struct({ queued: u32, hasEnded: bool });
/** A file in the shared folder, and its unique number. */
export const startedFile = struct({ path: bytes, file: u64 });
/** The bytes that a writer has stored under a key; the requested file is for exactly these. */
export const wantedFile = struct({ key: bytes, sizeBytes: u64, checksum: u64 });
export const endedFile = struct({ key: bytes, file: u64, isWhole: bool });
export const failedOrder = struct({ tenant: bytes, key: bytes, task: u32 });

/** The reason why a key does not exist, an index into `names.missReasons`, and the time of its removal (unix ms; 0 if unknown). */
export const miss = struct({ reason: i32, atMs: i64 });

/** A live client: its stable id (its client id if it announced none), and the epoch of its start. */
const member = struct({ clientID: uuid, stableID: bytes, epoch: u64, isHeard: bool, segments: vector(bytes) });
export const membership = struct({ authority: bytes, members: vector(member) });
const routeReplica = struct({ segment: bytes, clientID: uuid, status: i32, address: u64, isReadable: bool });
export const route = struct({ sizeBytes: u64, checksum: optional(u64), isMoving: bool, replicas: vector(routeReplica) });

/** An object in a holder's memory at `address`, as of record `asOf` of the master's log; `softPinUntilMs` is 0 without a soft pin, or for one without end. */
export const holding = struct({
  address: u64,
  sizeBytes: u64,
  asOf: u64,
  checksum: u64,
  softPinUntilMs: u64,
  tenant: bytes,
  key: bytes,
  fingerprint: bytes,
  group: bytes,
  dataType: u8,
  hardPin: bool,
});
/**
 * `gone` applies before `held`. `begins`: all objects are listed again from the
 * start; `isWhole`: the list is complete; `more`: further changes are pending.
 */
export const holdingChanges = struct({ lineage: u64, begins: bool, isWhole: bool, more: bool, gone: vector(u64), held: vector(holding) });
export const restoreBegun = struct({ lineage: u64, isWanted: bool });

export const done = expected(nothing);

export type Segment = ValueOf<typeof segment>;
export type ReplicateConfig = ValueOf<typeof replicateConfig>;
export type Descriptor = ValueOf<typeof descriptor>;
export type ReplicaList = ValueOf<typeof replicaList>;
export type Extent = ValueOf<typeof extent>;
export type ExtentLease = ValueOf<typeof extentLease>;
export type Commit = ValueOf<typeof commit>;
export type Disk = ValueOf<typeof disk>;
export type DiskOrders = ValueOf<typeof diskOrders>;
export type Order = ValueOf<typeof order>;
export type StoredFile = ValueOf<typeof storedFile>;
export type FileOf = ValueOf<typeof fileOf>;
export type FailedOrder = ValueOf<typeof failedOrder>;
export type Membership = ValueOf<typeof membership>;
export type Route = ValueOf<typeof route>;
export type ColdDisk = ValueOf<typeof coldDisk>;
export type ColdFile = ValueOf<typeof coldFile>;
export type StorageConfig = ValueOf<typeof storageConfig>;
export type StartedFile = ValueOf<typeof startedFile>;
export type WantedFile = ValueOf<typeof wantedFile>;
export type EndedFile = ValueOf<typeof endedFile>;
export type Holding = ValueOf<typeof holding>;
export type ObjectMeta = ValueOf<typeof objectMeta>;
