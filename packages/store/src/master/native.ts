// The native interface of the master's addon.
import { fail } from "@svc/contract/failures.ts";
import type { ReplicationCore } from "../ha/parts.ts";
import { loadAddon } from "../rpc/native-addon.ts";
import { names } from "../rpc/native-names.ts";
import { countedOperations } from "../rpc/native-operations.ts";
import type { Segment } from "../rpc/shapes.ts";
import type { NativeDisks } from "./native-disks.ts";
import type { NativeEvents } from "./native-events.ts";
import type { NativeOptions } from "./native-options.ts";

export const rights = { none: names.rights.indexOf("none"), tenant: names.rights.indexOf("tenant"), all: names.rights.indexOf("all") };
export type OnEvent = (kind: number, id: number, seq: number, functionID: number, body: Buffer) => void;

/** Keys, names and tenants are strings of bytes, one per character; ids have the form 8-4-4-4-12. Most methods throw while the log is read. */
export interface NativeMaster extends ReplicationCore, NativeDisks, NativeEvents {
  /** Declares an operation: the type literal of its results, an answer that never changes, and whether a tenant's key may call it. */
  declare(functionID: number, argsHash: number, resultHash: number, operation: string, literal: Buffer, constant: Buffer, tenants: boolean): void;
  /** Turns access control on, before the start: `functions` present a key, `trusted` are ADDRESS/BITS; then follow the bodies of both refusals. */
  guard(functions: readonly number[], trusted: readonly string[], noKey: Buffer, otherTenant: Buffer): void;
  /** Sets a connection's rights; with rights 0 it ends with its answer. Returns its peer, "" once it is gone. */
  authorize(connection: number, rights: number, tenant: string): string;
  callerOf(connection: number): { rights: number; tenant: string };
  listen(host: string, port: number): number;
  /** With `fast`, the core itself answers GET /query_key. Any connection with another request is passed on as an "http" event, with its bytes so far. */
  listenHttp(host: string, port: number, fast: boolean): number;
  /** Starts to answer, and to read the log. */
  start(): void;
  /** Listens for standbys; a "peer" event has the hello of each. */
  listenPeers(host: string, port: number): number;
  /** Returns true if a leader may answer now. */
  leased(): boolean;
  stop(): void;
  /** Sends an answer. A refusal does not wait for earlier changes to become durable. */
  answer(connection: number, seq: number, error: number, body: Buffer, isRefusal: boolean): void;
  /** Requests a "durable" event once all changes so far are durable. */
  reportDurable(): void;
  mount(segment: Segment, clientID: string): number;
  remount(segments: readonly Segment[], clientID: string): number;
  unmount(segmentID: string, clientID: string, graceMs: number): number;
  setState(segment: number, state: number): number;
  /** Returns false if the segment no longer exists. */
  probed(segment: number, reached: boolean): boolean;
  /** Stops reads from and puts to that client until it pings. */
  suspect(clientID: string): void;
  /** Sets the number of queued tasks; from one on, the client's next fetch is passed to TypeScript. */
  setTasks(clientID: string, queued: number): boolean;
  addTenant(name: string): number;
  setQuota(tenant: number, registered: boolean, bytes: number): void;
  /** Returns [status, body] of GET /query_key, without a lease. */
  queryKey(query: string): [number, Buffer];
  /** Returns JSON, without a lease. */
  entry(key: string, tenant: string): string;
  /** Returns a list as JSON, without a lease. */
  descriptors(key: string, tenant: string): string;
  /** Returns every replica of the object as JSON, readable or not; "" if there is none. Takes no lease. */
  route(key: string, tenant: string): string;
  /** Returns objects on the segment, and the next cursor, or 0. */
  objectsOn(
    segment: number,
    cursor: number,
    records: number,
  ): { next: number; objects: { tenant: string; key: string; sizeBytes: number; movable: boolean }[] };
  /** Stores notes in the log; `notes` alternates ids and texts. Returns whether the log accepted all, so that they survive a restart. */
  keepNotes(kind: number, notes: readonly string[]): boolean;
  dropNotes(ids: readonly string[]): void;
  notes(kind: number): string[];
  /** Returns [next cursor, or 0; keys...]. */
  keys(cursor: number, records: number, tenant: string, most: number): [number, ...string[]];
  /** Returns [next cursor, or 0; an object's JSON...]. */
  objects(cursor: number, records: number, tenant: string, most: number): [number, ...string[]];
  removeKeys(keys: readonly string[], tenant: string, force: boolean): number;
  /** Returns the next cursor, or 0. */
  removeSome(cursor: number, records: number, tenant: string, force: boolean): { code: number; next: number; removed: number };
  clearKeys(keys: readonly string[], clientID: string, segment: string): string[];
  holdersOf(key: string, tenant: string): { code: number; holders: { segment: number; clientID: string }[] };
  segments(): string;
  clients(): string;
  tenants(): string;
  metrics(): number[];
  operationMetrics(): number[];
  /** Returns true if the log can accept more changes. */
  canLog(): boolean;
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
  /** 64-bit numbers as decimal digits. */
  readonly base: string;
  readonly sizeBytes: string;
  readonly usedBytes: string;
  /** The wire's numbers: 1 mounted, 2 draining, 3 drained, 4 gracefully unmounting, 5 unmounting. */
  readonly state: number;
  readonly awaiting: boolean;
  readonly silent: boolean;
  readonly unreachable: boolean;
};

export type ClientRow = {
  readonly number: number;
  readonly id: string;
  readonly segments: number;
  /** True if it mounted or remounted something since this master's start. */
  readonly known: boolean;
  /** True if it misses pings. */
  readonly silent: boolean;
};

export const clientRows = (native: NativeMaster): ClientRow[] => JSON.parse(native.clients()) as ClientRow[];

export type TenantRow = {
  readonly number: number;
  readonly name: string;
  /** 64-bit numbers as decimal digits. */
  readonly quotaBytes: string;
  readonly effectiveBytes: string;
  readonly chargedBytes: string;
  readonly registered: boolean;
};

export const tenantRows = (native: NativeMaster): TenantRow[] => JSON.parse(native.tenants()) as TenantRow[];

/** The kinds of notes that TypeScript stores in the log. */
export const noteKinds = { task: 1, job: 2 } as const;

export const segmentRows = (native: NativeMaster): SegmentRow[] => JSON.parse(native.segments()) as SegmentRow[];

export type CoreMetrics = Record<(typeof names.metrics)[number], number>;

export function coreMetrics(native: NativeMaster): CoreMetrics {
  const values = native.metrics();
  return Object.fromEntries(names.metrics.map((name, at) => [name, values[at] ?? 0])) as CoreMetrics;
}

/** The number of buckets of an operation's histogram; the last one has no bound. */
export const BUCKETS = 12;
const ROW = names.operationMetrics.length;

export type OperationMetrics = { name: string; requests: number; items: number; failedItems: number; seconds: number; buckets: number[] };

export function operationMetrics(native: NativeMaster): OperationMetrics[] {
  const values = native.operationMetrics();
  if (values.length === 0) return [];
  return countedOperations.slice(1).map((name, index) => {
    const at = (index + 1) * ROW;
    const [requests = 0, items = 0, failedItems = 0, nanoseconds = 0] = values.slice(at, at + 4);
    return { name, requests, items, failedItems, seconds: nanoseconds / 1e9, buckets: values.slice(at + 4, at + ROW) };
  });
}

/** @throws HOST_UNSUITABLE where the addon was not built or does not fit, SETTING_INVALID where the folder cannot be used. */
export function openNative(options: NativeOptions, onEvent: OnEvent): NativeMaster {
  const addon = loadAddon<{ NativeMaster: new (options: NativeOptions, onEvent: OnEvent) => NativeMaster }>();
  try {
    return new addon.NativeMaster(options, onEvent);
  } catch (error) {
    return fail("SETTING_INVALID", `the store's log: ${(error as Error).message}`, { cause: error });
  }
}
