// The structures that the store's RPC carries, as clients of release 0.3.13 spell them.
import { bool, bytes, expected, i32, i64, nothing, optional, struct, u8, u32, u64, uuid, type ValueOf, variant, vector } from "./schema.ts";

export const segment = struct({ id: uuid, name: bytes, base: u64, sizeBytes: u64, endpoint: bytes, protocol: bytes, hostID: bytes });

/** What a writer wishes for its replicas. */
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

const buffer = struct({ sizeBytes: u64, address: u64, protocol: bytes, endpoint: bytes });
const memory = struct({ buffer });

/** Where the bytes of a replica are; the order of the cases is their index on the wire. */
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
export const promotion = struct({ target: descriptor });
export const taskState = struct({ id: uuid, type: i32, status: i32, createdMs: i64, updatedMs: i64, clientID: uuid, message: bytes });

export const done = expected(nothing);

export type Segment = ValueOf<typeof segment>;
export type ReplicateConfig = ValueOf<typeof replicateConfig>;
export type Descriptor = ValueOf<typeof descriptor>;
export type ReplicaList = ValueOf<typeof replicaList>;
export type ObjectMeta = ValueOf<typeof objectMeta>;
