// The native seam: all that the master's addon has, and where it is loaded from.
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { fail } from "@svc/contract/failures.ts";
import type { Segment } from "../rpc/shapes.ts";

export type NativeOptions = {
  leaseMs: number;
  softPinMs: number;
  maxSoftPinMs: number;
  evictSoftPinned: boolean;
  evictionRatio: number;
  highWatermark: number;
  clientTtlMs: number;
  suspectMs: number;
  discardMs: number;
  releaseMs: number;
  taskTimeoutMs: number;
  /** Of `strategies`. */
  strategy: number;
  multiTenant: boolean;
  maxFrameBytes: number;
  maxConnections: number;
  maxBufferedBytes: number;
  halfFrameMs: number;
  snapshotBytes: number;
  folder: string;
  disk: boolean;
  logFileBytes: number;
};

/** The order is that of `Strategy` in native/src/settings.h. */
export const strategies = ["random", "free_ratio_first", "local_first"] as const;

/** The order is that of `EventKind` in native/src/server.h. */
export const eventKinds = ["request", "unknown", "malformed", "probe", "client", "recovered", "durable", "trouble"] as const;
export type OnEvent = (kind: number, id: number, seq: number, functionID: number, body: Buffer) => void;

/** Keys, names and tenants are strings of bytes, one per character; ids are 8-4-4-4-12. Most methods throw while the log is read. */
export interface NativeMaster {
  /** What an operation's messages look like. The core answers those it knows by name; `constant` is a body that is always the same. */
  declare(functionID: number, argsHash: number, resultHash: number, operation: string, literal: Buffer, constant: Buffer): void;
  listen(host: string, port: number): number;
  /** Begins to answer, and to read the log. */
  start(): void;
  stop(): void;
  answer(connection: number, seq: number, error: number, body: Buffer): void;
  /** A "durable" event follows once all that was changed until now is kept. */
  tellDurable(): void;
  mount(segment: Segment, clientID: string): number;
  remount(segments: readonly Segment[], clientID: string): number;
  unmount(segmentID: string, clientID: string, graceMs: number): number;
  setState(segment: number, state: number): number;
  /** False when there is no such segment any more. */
  probed(segment: number, reached: boolean): boolean;
  /** From one on, the client's next fetch comes here. */
  setTasks(clientID: string, queued: number): boolean;
  addTenant(name: string): number;
  setQuota(tenant: number, registered: boolean, bytes: number): void;
  /** JSON, or an error code. No lease. */
  replicas(key: string): string | number;
  entry(key: string): string;
  /** [next cursor, or 0; keys...] */
  keys(cursor: number, records: number, tenant: string): [number, ...string[]];
  removeKeys(keys: readonly string[], tenant: string, force: boolean): number;
  /** [next cursor, or 0; removed], or [-1, error code]. */
  removeSome(cursor: number, records: number, tenant: string, force: boolean): [number, number];
  clearKeys(keys: readonly string[], clientID: string, segment: string): string[];
  /** [error code; segment number, client id, ...] */
  holdersOf(key: string, tenant: string): [number, ...(number | string)[]];
  segments(): string;
  clients(): string;
  tenants(): string;
  figures(): number[];
  opFigures(): number[];
  /** Whether the log can take more. */
  room(): boolean;
}

export type SegmentRow = {
  readonly number: number;
  readonly id: string;
  readonly clientID: string;
  readonly name: string;
  readonly endpoint: string;
  readonly protocol: string;
  readonly hostID: string;
  /** 64-bit numbers, in decimal digits. */
  readonly base: string;
  readonly sizeBytes: string;
  readonly usedBytes: string;
  /** Of the wire: 1 mounted, 2 draining, 3 drained, 4 gracefully unmounting, 5 unmounting. */
  readonly state: number;
  readonly awaiting: boolean;
  readonly silent: boolean;
  readonly unreachable: boolean;
};

export const segmentRows = (native: NativeMaster): SegmentRow[] => JSON.parse(native.segments()) as SegmentRow[];

/** The order is that of `figures` in native/src/addon_figures.cc; those after "logFull" come once the log was read. */
export const figureNames = [
  "connections",
  "accepted",
  "refused",
  "malformed",
  "bufferedBytes",
  "logFull",
  "objects",
  "usedBytes",
  "capacityBytes",
  "unfinished",
  "evictedObjects",
  "evictedBytes",
  "evictions",
  "allocationFailures",
  "discarded",
  "clientsLost",
  "replicasLost",
  "refusedForRoom",
  "lsn",
  "durableLsn",
  "logBytes",
  "snapshots",
] as const;
export type Figures = Record<(typeof figureNames)[number], number>;

export function figuresOf(native: NativeMaster): Figures {
  const values = native.figures();
  return Object.fromEntries(figureNames.map((name, at) => [name, values[at] ?? 0])) as Figures;
}

/** The order is that of `Op` in native/src/operations.h. */
export const nativeOperations = [
  "script",
  "constant",
  "Ping",
  "FetchTasks",
  "ExistKey",
  "BatchExistKey",
  "GetReplicaList",
  "BatchGetReplicaList",
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
] as const;
export const BUCKETS = 12;
const ROW = 4 + BUCKETS;

export type OperationFigures = { name: string; requests: number; items: number; failedItems: number; seconds: number; buckets: number[] };

export function operationFigures(native: NativeMaster): OperationFigures[] {
  const values = native.opFigures();
  if (values.length === 0) return [];
  return nativeOperations.slice(1).map((name, index) => {
    const at = (index + 1) * ROW;
    const [requests = 0, items = 0, failedItems = 0, nanoseconds = 0] = values.slice(at, at + 4);
    return { name, requests, items, failedItems, seconds: nanoseconds / 1e9, buckets: values.slice(at + 4, at + ROW) };
  });
}

/** @throws HOST_UNSUITABLE where the addon was not built, SETTING_INVALID where the folder cannot be used. */
export function openNative(options: NativeOptions, onEvent: OnEvent): NativeMaster {
  const path = process.env["SVC_STORE_NATIVE"] || fileURLToPath(new URL("../../native/build/svc_store.node", import.meta.url));
  let addon: { NativeMaster: new (options: NativeOptions, onEvent: OnEvent) => NativeMaster };
  try {
    addon = createRequire(import.meta.url)(path);
  } catch (error) {
    return fail("HOST_UNSUITABLE", `the store's native part cannot be loaded from ${path}: ${(error as Error).message}; ./svc setup builds it`, {
      cause: error,
    });
  }
  try {
    return new addon.NativeMaster(options, onEvent);
  } catch (error) {
    return fail("SETTING_INVALID", `the store's log: ${(error as Error).message}`, { cause: error });
  }
}
