// The operations that the master's core decodes, executes and answers; all others go to TypeScript.
import type { OperationName } from "./operations.ts";

const reading = [
  "Ping",
  "FetchTasks",
  "ExistKey",
  "BatchExistKey",
  "ProbeKey",
  "BatchProbeKey",
  "GetReplicaList",
  "BatchGetReplicaList",
  "GetReplicaListForAdmin",
  "BatchGetReplicaListForAdmin",
  "ReadObjects",
  "WhyMissing",
  "TakeChanges",
  "TakeDiskOrders",
] as const satisfies readonly OperationName[];

/** The core refuses these while its log is full. */
const changing = [
  "PutStart",
  "UpsertStart",
  "BatchPutStart",
  "BatchUpsertStart",
  "PutEnd",
  "UpsertEnd",
  "BatchPutEnd",
  "BatchUpsertEnd",
  "PutRevoke",
  "UpsertRevoke",
  "BatchPutRevoke",
  "BatchUpsertRevoke",
  "Remove",
  "BatchRemove",
  "CopyStart",
  "MoveStart",
  "CopyEnd",
  "CopyRevoke",
  "MoveEnd",
  "MoveRevoke",
  "LeaseExtents",
  "ReturnExtents",
  "CommitPuts",
  "BeginCopies",
  "EndCopies",
  "BeginRestore",
  "RestoreObjects",
  "KeepFiles",
] as const satisfies readonly OperationName[];

export const nativeOperations = [...reading, ...changing] as const;
export const firstChange = changing[0];

/** All that the core counts: calls that TypeScript answers, constant answers, the operations, and GET /query_key. */
export const countedOperations = ["script", "constant", ...nativeOperations, "HttpQueryKey"] as const;
