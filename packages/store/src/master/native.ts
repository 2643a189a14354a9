// The native seam: all that the master's addon has, and where it is loaded from.
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { fail } from "@svc/contract/failures.ts";
import type { ReplicationCore } from "../ha/parts.ts";
import type { Segment } from "../rpc/shapes.ts";
import type { NativeDisks } from "./native-disks.ts";
import type { NativeEvents } from "./native-events.ts";
import type { NativeOptions } from "./native-options.ts";

/** The order is that of `Strategy` in native/src/settings.h. */
export const strategies = ["random", "free_ratio_first", "local_first"] as const;

/** The order is that of `EventKind` in native/src/server.h. */
export const eventKinds = [
  "request",
  "unknown",
  "malformed",
  "probe",
  "client",
  "recovered",
  "durable",
  "trouble",
  "batches",
  "http",
  "denied",
  "standing",
  "peer",
  "caughtUp",
  "peerLost",
  "followed",
  "followLost",
  "handover",
] as const;
/** The order is that of `Rights` in native/src/access.h. */
export const rights = { none: 0, tenant: 1, all: 2 } as const;
export type OnEvent = (kind: number, id: number, seq: number, functionID: number, body: Buffer) => void;

/** Keys, names and tenants are strings of bytes, one per character; ids are 8-4-4-4-12. Most methods throw while the log is read. */
export interface NativeMaster extends ReplicationCore, NativeDisks, NativeEvents {
  /** What an operation's messages look like. The core answers those it knows by name; `constant` is a body that is always the same, `tenants`: a tenant's key may call it. */
  declare(functionID: number, argsHash: number, resultHash: number, operation: string, literal: Buffer, constant: Buffer, tenants: boolean): void;
  /** From now on calls need a key: `functions` show one, `trusted` are ADDRESS/BITS; then the bodies of both refusals. Before the start. */
  guard(functions: readonly number[], trusted: readonly string[], noKey: Buffer, otherTenant: Buffer): void;
  /** With rights 0 the connection ends with its answer. Its peer, "" once it is gone. */
  authorize(connection: number, rights: number, tenant: string): string;
  /** [rights, tenant] */
  callerOf(connection: number): [number, string];
  listen(host: string, port: number): number;
  /** `fast`: GET /query_key is answered there. An "http" event hands over each connection that asks anything else: its descriptor, and what it sent. */
  listenHttp(host: string, port: number, fast: boolean): number;
  /** Begins to answer, and to read the log. */
  start(): void;
  /** Where standbys follow; a "peer" event brings what each says of itself. */
  listenPeers(host: string, port: number): number;
  /** Whether a leader may answer now. */
  leased(): boolean;
  stop(): void;
  /** A refusal waits for nothing that is to be kept first. */
  answer(connection: number, seq: number, error: number, body: Buffer, isRefusal: boolean): void;
  /** A "durable" event follows once all that was changed until now is kept. */
  tellDurable(): void;
  mount(segment: Segment, clientID: string): number;
  remount(segments: readonly Segment[], clientID: string): number;
  unmount(segmentID: string, clientID: string, graceMs: number): number;
  setState(segment: number, state: number): number;
  /** False when there is no such segment any more. */
  probed(segment: number, reached: boolean): boolean;
  /** Nothing is read from that client or put to it until it pings. */
  suspect(clientID: string): void;
  /** From one on, the client's next fetch comes here. */
  setTasks(clientID: string, queued: number): boolean;
  addTenant(name: string): number;
  setQuota(tenant: number, registered: boolean, bytes: number): void;
  /** [status, body] of GET /query_key. No lease. */
  queryKey(query: string): [number, Buffer];
  /** JSON. No lease. */
  entry(key: string, tenant: string): string;
  /** JSON, a list. No lease. */
  descriptors(key: string, tenant: string): string;
  /** JSON: every replica of the object, readable or not; "" where there is none. No lease. */
  route(key: string, tenant: string): string;
  /** [next cursor, or 0; (tenant, key, bytes, may be moved now) of each object on the segment...] */
  objectsOn(segment: number, cursor: number, records: number): [number, ...(string | number | boolean)[]];
  /** Of ids and texts by turns; whether the log took all of them: they are there after a restart. */
  keepNotes(kind: number, notes: readonly string[]): boolean;
  dropNotes(ids: readonly string[]): void;
  notes(kind: number): string[];
  /** [next cursor, or 0; keys...] */
  keys(cursor: number, records: number, tenant: string, most: number): [number, ...string[]];
  /** [next cursor, or 0; an object's JSON...] */
  objects(cursor: number, records: number, tenant: string, most: number): [number, ...string[]];
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
  readonly nof: boolean;
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

export type ClientRow = {
  readonly number: number;
  readonly id: string;
  readonly segments: number;
  /** Mounted or remounted something in this life of the master. */
  readonly known: boolean;
  /** Misses pings. */
  readonly silent: boolean;
};

export const clientRows = (native: NativeMaster): ClientRow[] => JSON.parse(native.clients()) as ClientRow[];

export type TenantRow = {
  readonly number: number;
  readonly name: string;
  /** 64-bit numbers, in decimal digits. */
  readonly quotaBytes: string;
  readonly effectiveBytes: string;
  readonly chargedBytes: string;
  readonly registered: boolean;
};

export const tenantRows = (native: NativeMaster): TenantRow[] => JSON.parse(native.tenants()) as TenantRow[];

/** Kinds of notes that the log keeps for the script. */
export const noteKinds = { task: 1, job: 2 } as const;

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
  "eventBatches",
  "events",
  "eventsDropped",
  "keysUnparsed",
  "disks",
  "diskUsedBytes",
  "diskCapacityBytes",
  "offloadsWaiting",
  "offloadedObjects",
  "offloadedBytes",
  "offloadsFailed",
  "offloadsSkipped",
  "promotedObjects",
  "promotionsFailed",
  "damagedFiles",
  "restoredObjects",
  "folderFiles",
  "folderUsedBytes",
  "folderQuotaBytes",
  "folderDropped",
  "filedObjects",
  "filesFailed",
  "filesEvicted",
  "filesRefused",
  "nofUsedBytes",
  "nofCapacityBytes",
  "nofEvictedObjects",
  "nofEvictedBytes",
  "nofDamaged",
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
  "HttpQueryKey",
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
