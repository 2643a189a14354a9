// The operations of the store's RPC: one declaration each, from which ids, hashes, codecs, server and client follow.
import { createHash } from "node:crypto";
import { typeHash } from "./body.ts";
import { bool, bytes, expected, i32, i64, map, named, type Schema, tuple, u32, u64, uuid, type ValueOf, vector } from "./schema.ts";
import {
  coldDisk,
  coldFiles,
  commit,
  copyBegun,
  copyRequest,
  copyStart,
  descriptor,
  disk,
  diskOrders,
  done,
  endedFile,
  extentLease,
  failedOrder,
  fileOf,
  holding,
  holdingChanges,
  leasePolicy,
  membership,
  miss,
  moveStart,
  nofOwner,
  nofSegment,
  objectMeta,
  offloadItem,
  pong,
  promotion,
  queued,
  replicaList,
  replicateConfig,
  restoreBegun,
  route,
  segment,
  startedFile,
  storageConfig,
  storedFile,
  storedObject,
  taskAssignment,
  taskOutcome,
  taskState,
  wantedFile,
} from "./shapes.ts";

export type Operation<A extends readonly unknown[] = readonly unknown[], R = unknown> = {
  /** A call without arguments has an empty body. */
  readonly args: Schema<A> | undefined;
  readonly arguments: readonly Schema<unknown>[];
  readonly result: Schema<R>;
  readonly argsHash: number;
  readonly resultHash: number;
  /** The index of the tenant among the arguments; -1 for none. */
  readonly tenantAt: number;
};

/** A separate schema object, which distinguishes the tenant from other strings of bytes. */
const tenant = named("tenant", bytes);

function operation<R, S extends readonly Schema<unknown>[]>(result: Schema<R>, ...args: S): Operation<{ [K in keyof S]: ValueOf<S[K]> }, R> {
  const schema = args.length === 0 ? undefined : tuple(...args);
  return {
    args: schema,
    arguments: args,
    result,
    argsHash: schema === undefined ? 0 : typeHash(schema.literal),
    resultHash: typeHash(result.literal),
    tenantAt: args.indexOf(tenant),
  };
}

const key = named("key", bytes);
const client = named("client", uuid);
const size = named("size", u64);
const count = named("count", u64);
const policy = named("policy", replicateConfig);
const meta = named("meta", objectMeta);
const taskID = uuid;
const replicaType = named("replicaType", i32);
const force = named("force", bool);
const segmentName = named("segmentName", bytes);
const source = named("source", bytes);
const target = named("target", bytes);
const fingerprint = named("fingerprint", bytes);
const avoided = named("avoidedEndpoint", bytes);
const extent = named("extent", u64);
const failed = named("failed", bool);
const replace = named("replace", bool);
const isMove = named("isMove", bool);
const diskID = named("disk", uuid);
const offloads = named("offloads", u32);
const others = named("others", u32);
const damaged = bool;
const replicaID = u64;
const generation = u64;
const leaseID = uuid;
const stableID = bytes;
const epoch = u64;
const empty = bool;
const ownersTenant = bytes;

/** The calls of Mooncake's releases 0.3.13 and 0.3.14; `ServiceReady` answers the handshake version 2.0.0. */
export const operations = {
  ServiceReady: operation(expected(bytes)),
  GetFsdir: operation(expected(bytes)),
  GetStorageConfig: operation(expected(storageConfig)),
  Ping: operation(expected(pong), client),
  MountSegment: operation(done, segment, client),
  ReMountSegment: operation(done, vector(segment), client),
  UnmountSegment: operation(done, uuid, client),
  GracefulUnmountSegment: operation(done, uuid, client, u64),
  ExistKey: operation(expected(bool), key, tenant),
  BatchExistKey: operation(vector(expected(bool)), vector(key), tenant),
  GetReplicaList: operation(expected(replicaList), key, tenant),
  BatchGetReplicaList: operation(vector(expected(replicaList)), vector(key), tenant),
  GetReplicaListByRegex: operation(expected(map(vector(descriptor))), bytes, tenant),
  PutStart: operation(expected(vector(descriptor)), client, key, size, policy, tenant),
  UpsertStart: operation(expected(vector(descriptor)), client, key, size, policy, tenant),
  PutEnd: operation(done, client, meta, replicaType, tenant),
  UpsertEnd: operation(done, client, meta, replicaType, tenant),
  PutRevoke: operation(done, client, key, replicaType, tenant),
  UpsertRevoke: operation(done, client, key, replicaType, tenant),
  BatchPutStart: operation(vector(expected(vector(descriptor))), client, vector(key), vector(size), policy, tenant),
  BatchUpsertStart: operation(vector(expected(vector(descriptor))), client, vector(key), vector(size), policy, tenant),
  BatchPutEnd: operation(vector(done), client, vector(meta), replicaType, tenant),
  BatchUpsertEnd: operation(vector(done), client, vector(meta), tenant),
  BatchPutRevoke: operation(vector(done), client, vector(key), replicaType, tenant),
  BatchUpsertRevoke: operation(vector(done), client, vector(key), tenant),
  Remove: operation(done, key, force, tenant),
  BatchRemove: operation(vector(done), vector(key), force, tenant),
  RemoveByRegex: operation(expected(i64), bytes, force, tenant),
  RemoveAll: operation(i64, force, tenant),
  BatchReplicaClear: operation(expected(vector(bytes)), vector(key), client, segmentName),
  BatchQueryIp: operation(expected(map(vector(bytes), client)), vector(client)),
  FetchTasks: operation(expected(vector(taskAssignment)), client, count),
  MarkTaskToComplete: operation(done, client, taskOutcome),
  QueryTask: operation(expected(taskState), taskID),
  CreateCopyTask: operation(expected(uuid), key, tenant, vector(segmentName)),
  CreateMoveTask: operation(expected(uuid), key, tenant, segmentName, segmentName),
  CopyStart: operation(expected(copyStart), client, key, tenant, source, vector(target)),
  CopyEnd: operation(done, client, key, tenant),
  CopyRevoke: operation(done, client, key, tenant),
  MoveStart: operation(expected(moveStart), client, key, tenant, source, target),
  MoveEnd: operation(done, client, key, tenant),
  MoveRevoke: operation(done, client, key, tenant),
  MountLocalDiskSegment: operation(done, client, bool),
  OffloadObjectHeartbeat: operation(expected(vector(offloadItem)), client, bool),
  UnmountLocalDiskSegment: operation(done, client),
  PollRemoveAll: operation(expected(bool), client),
  PromotionObjectHeartbeat: operation(expected(vector(offloadItem)), client),
  ReportSsdCapacity: operation(done, client, i64),
  NotifyOffloadSuccess: operation(done, client, vector(offloadItem), vector(storedObject)),
  PromotionAllocStart: operation(expected(promotion), client, key, tenant, u64, vector(segmentName)),
  NotifyPromotionSuccess: operation(done, client, key, tenant),
  NotifyPromotionFailure: operation(done, client, key, tenant),
  EvictDiskReplica: operation(done, client, key, tenant, replicaType),
  BatchEvictDiskReplica: operation(vector(done), client, vector(key), tenant, replicaType),
  QuerySegmentStatus: operation(expected(i32), segmentName),
  QuerySegmentStatusById: operation(expected(i32), uuid),
  // Probes and administrators' reads take no leases, except those that a policy names.
  ProbeKey: operation(expected(bool), key, tenant),
  BatchProbeKey: operation(vector(expected(bool)), named("policy", leasePolicy), vector(key), tenant),
  GetReplicaListForAdmin: operation(expected(replicaList), key, tenant),
  BatchGetReplicaListForAdmin: operation(vector(expected(replicaList)), vector(key), tenant),
  EvictDiskReplicaIfCurrent: operation(expected(bool), client, key, tenant, replicaType, generation),
  MountNoFSegment: operation(done, nofSegment, client),
  ReMountNoFSegment: operation(done, vector(nofSegment), client),
  UnmountNoFSegment: operation(done, uuid, client),
  GetAllNoFSegments: operation(expected(vector(nofSegment))),
  GetNoFSegmentsByName: operation(expected(vector(nofOwner)), segmentName),
  RegisterPrefetchTask: operation(done, client, key, tenant),
  DynamicReplicaCopyStart: operation(expected(copyStart), client, key, tenant, segmentName, vector(segmentName), leaseID, epoch),
  DynamicReplicaCopyEnd: operation(done, client, key, tenant, leaseID, epoch),
  DynamicReplicaCopyRevoke: operation(done, client, key, tenant, leaseID, epoch),

  // Our own operations. Authorize comes first on the connection of a client with a key; it presents the token and returns its tenant.
  Authorize: operation(expected(bytes), bytes),
  // Returns the brands that the master serves.
  GetBrands: operation(expected(vector(bytes))),
  // Returns whether the tenant of a call matters; a master without tenants has a single keyspace.
  HasTenants: operation(expected(bool)),
  // ReadObjects grants leases as BatchGetReplicaList does; an object of another fingerprint is not found.
  ReadObjects: operation(vector(expected(replicaList)), vector(key), fingerprint, tenant),
  WhyMissing: operation(vector(miss), vector(key), fingerprint, tenant),
  LeaseExtents: operation(expected(extentLease), client, size, count, policy, vector(avoided), tenant),
  ReturnExtents: operation(done, client, vector(extent), failed),
  CommitPuts: operation(vector(done), client, vector(named("commit", commit)), policy, fingerprint, replace, tenant),
  // The client that moves the bytes begins and ends up to 256 copies or moves of one tenant's keys per call.
  BeginCopies: operation(vector(expected(copyBegun)), client, isMove, vector(named("request", copyRequest)), tenant),
  EndCopies: operation(vector(done), client, isMove, vector(key), failed, tenant),
  // Tasks that the master no longer knows count as ended.
  CompleteTasks: operation(done, client, vector(taskOutcome)),
  // Calls of an owner of disks whose files are segments of the transfer engine; the counts bound what it accepts now.
  MountDisk: operation(done, client, disk),
  TakeDiskOrders: operation(expected(diskOrders), client, diskID, offloads, others),
  KeepFiles: operation(vector(done), client, diskID, vector(named("file", storedFile))),
  DropFiles: operation(done, client, diskID, vector(fileOf), damaged),
  FailOffloads: operation(done, client, diskID, vector(failedOrder)),
  // The writer of these objects requests a file for each in the shared folder, again if the answer was lost, and reports the outcome.
  StartFiles: operation(vector(expected(startedFile)), client, vector(wantedFile), tenant),
  EndFiles: operation(vector(done), client, vector(endedFile), tenant),
  ReportWrongBytes: operation(done, key, replicaID, tenant),
  // A holder that remembers the objects in its memory requests changes, up to a count, and from the start if it asks for that.
  TakeChanges: operation(expected(holdingChanges), client, named("fromStart", bool), named("most", u32)),
  // A holder offers to restore a master that may have lost its log: the lineage that it remembers, and then its objects. `isLast` ends it.
  BeginRestore: operation(expected(restoreBegun), client, named("lineage", u64), vector(named("segment", segment))),
  RestoreObjects: operation(vector(done), client, vector(named("holding", holding)), named("isLast", bool)),
  // Announces a client's stable id and its epoch; of two clients with one stable id the later start counts.
  Announce: operation(done, client, stableID, epoch),
  // A client that ends in order has unmounted its segments.
  Leave: operation(done, client),
  ListMembers: operation(expected(membership)),
  // Returns every replica, readable or not, without a lease.
  FindRoute: operation(expected(route), key, tenant),
  // Assigns a copy (0) or move (1) to the named client alone, tried once; epoch 0 means its latest start.
  AssignMigration: operation(expected(uuid), stableID, epoch, i32, key, tenant, segmentName, vector(segmentName)),
  // Like QueryTask for many tasks at once.
  QueryTasks: operation(vector(expected(taskState)), vector(taskID)),
  // The owner of cold-tier devices unmounts one (with `empty`, only without objects), and requests objects of one tenant or of all.
  UnmountDisk: operation(done, client, diskID, empty),
  QueueOffloads: operation(expected(queued), client, diskID, ownersTenant, u32),
  // Sets the objects of the owner's memory that are offloaded automatically: 0 none, 1 those about to be evicted, 2 all once they are stored.
  FillDevice: operation(done, client, diskID, ownersTenant, u32),
  // The cold tier's administrator lists devices and their files (from a cursor
  // on), drops files of objects that are also in memory, and commands an owner.
  ListColdDisks: operation(expected(vector(coldDisk))),
  ListFiles: operation(expected(coldFiles), diskID, u32),
  ReleaseFiles: operation(vector(done), diskID, vector(fileOf)),
  CommandClient: operation(expected(uuid), stableID, epoch, bytes),
} as const;

/** Calls of release 0.3.14 that our masters refuse: their types are not declared. */
export const weightCalls = [
  ...(["BeginWeightImport", "CommitWeightImport", "AbortWeightImport", "GetWeightRevision", "ListWeightRevisions", "DeleteWeightRevision"] as const),
  ...(["AcquireWeightRevisionLease", "RenewWeightRevisionLease", "ReleaseWeightRevisionLease"] as const),
  ...(["StartWeightResidencyOperation", "QueryWeightOperation"] as const),
];

export type OperationName = keyof typeof operations;
export type ArgsOf<N extends OperationName> = (typeof operations)[N] extends Operation<infer A, unknown> ? A : never;
export type ResultOf<N extends OperationName> = (typeof operations)[N] extends Operation<readonly unknown[], infer R> ? R : never;

/** Returns an operation's id in requests: four bytes of a name's MD5. `scope` belongs to the brand, such as `svc::WrappedMasterService`. */
export function functionID(scope: string, name: string): number {
  return createHash("md5").update(`${scope}::${name}`).digest().readUInt32BE(0);
}
