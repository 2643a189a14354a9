// The operations of the store's RPC: one declaration each, from which ids, hashes, codecs, server and client follow.
import { createHash } from "node:crypto";
import { typeHash } from "./body.ts";
import { bool, bytes, expected, i32, i64, map, type Schema, tuple, u64, uuid, type ValueOf, vector } from "./schema.ts";
import {
  copyStart,
  descriptor,
  done,
  moveStart,
  objectMeta,
  offloadItem,
  pong,
  promotion,
  replicaList,
  replicateConfig,
  segment,
  storageConfig,
  storedObject,
  taskAssignment,
  taskOutcome,
  taskState,
} from "./shapes.ts";

export type Operation<A extends readonly unknown[] = readonly unknown[], R = unknown> = {
  /** A call without arguments has an empty body. */
  readonly args: Schema<A> | undefined;
  readonly result: Schema<R>;
  readonly argsHash: number;
  readonly resultHash: number;
};

function operation<R, S extends readonly Schema<unknown>[]>(result: Schema<R>, ...args: S): Operation<{ [K in keyof S]: ValueOf<S[K]> }, R> {
  const schema = args.length === 0 ? undefined : tuple(...args);
  return { args: schema, result, argsHash: schema === undefined ? 0 : typeHash(schema.literal), resultHash: typeHash(result.literal) };
}

const key = bytes;
const tenant = bytes;
const client = uuid;
const taskID = uuid;
const replicaType = i32;
const force = bool;
const segmentName = bytes;

/** As clients of release 0.3.13 call them; `ServiceReady` answers the handshake version 2.0.0. */
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
  PutStart: operation(expected(vector(descriptor)), client, key, u64, replicateConfig, tenant),
  UpsertStart: operation(expected(vector(descriptor)), client, key, u64, replicateConfig, tenant),
  PutEnd: operation(done, client, objectMeta, replicaType, tenant),
  UpsertEnd: operation(done, client, objectMeta, replicaType, tenant),
  PutRevoke: operation(done, client, key, replicaType, tenant),
  UpsertRevoke: operation(done, client, key, replicaType, tenant),
  BatchPutStart: operation(vector(expected(vector(descriptor))), client, vector(key), vector(u64), replicateConfig, tenant),
  BatchUpsertStart: operation(vector(expected(vector(descriptor))), client, vector(key), vector(u64), replicateConfig, tenant),
  BatchPutEnd: operation(vector(done), client, vector(objectMeta), replicaType, tenant),
  BatchUpsertEnd: operation(vector(done), client, vector(objectMeta), tenant),
  BatchPutRevoke: operation(vector(done), client, vector(key), replicaType, tenant),
  BatchUpsertRevoke: operation(vector(done), client, vector(key), tenant),
  Remove: operation(done, key, force, tenant),
  BatchRemove: operation(vector(done), vector(key), force, tenant),
  RemoveByRegex: operation(expected(i64), bytes, force, tenant),
  RemoveAll: operation(i64, force, tenant),
  BatchReplicaClear: operation(expected(vector(bytes)), vector(key), client, segmentName),
  BatchQueryIp: operation(expected(map(vector(bytes), client)), vector(client)),
  FetchTasks: operation(expected(vector(taskAssignment)), client, u64),
  MarkTaskToComplete: operation(done, client, taskOutcome),
  QueryTask: operation(expected(taskState), taskID),
  CreateCopyTask: operation(expected(uuid), key, tenant, vector(segmentName)),
  CreateMoveTask: operation(expected(uuid), key, tenant, segmentName, segmentName),
  CopyStart: operation(expected(copyStart), client, key, tenant, segmentName, vector(segmentName)),
  CopyEnd: operation(done, client, key, tenant),
  CopyRevoke: operation(done, client, key, tenant),
  MoveStart: operation(expected(moveStart), client, key, tenant, segmentName, segmentName),
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
} as const;

export type OperationName = keyof typeof operations;
export type ArgsOf<N extends OperationName> = (typeof operations)[N] extends Operation<infer A, unknown> ? A : never;
export type ResultOf<N extends OperationName> = (typeof operations)[N] extends Operation<readonly unknown[], infer R> ? R : never;

/** How a request names its operation: four bytes of a name's MD5. `scope` is the brand's own, such as `svc::WrappedMasterService`. */
export function functionID(scope: string, name: string): number {
  return createHash("md5").update(`${scope}::${name}`).digest().readUInt32BE(0);
}
