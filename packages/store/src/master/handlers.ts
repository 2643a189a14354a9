// What the script answers: holders, tasks, patterns, everything at once, and what a master without SSD says.
import { setImmediate as breathe } from "node:timers/promises";
import { codes } from "../rpc/codes.ts";
import type { ArgsOf, OperationName, ResultOf } from "../rpc/operations.ts";
import type { Expected } from "../rpc/schema.ts";
import type { Descriptor } from "../rpc/shapes.ts";
import { type NativeMaster, segmentRows } from "./native.ts";
import { patternOf } from "./pattern.ts";
import { type Tasks, taskType } from "./tasks.ts";

/** Records looked at between two breaths of the event loop. */
const SLICE = 5_000;
/** Replica descriptors in one answer to a pattern. */
const MAX_LISTED = 100_000;

type Handler<N extends OperationName> = (...args: ArgsOf<N>) => ResultOf<N> | Promise<ResultOf<N>>;
export type Handlers = {
  readonly byName: { readonly [N in OperationName]?: Handler<N> };
  /** Answers that never change. */
  readonly constants: { readonly [N in OperationName]?: ResultOf<N> };
};

/** The release whose clients this master answers, as their handshake compares it. */
export const HANDSHAKE_VERSION = "2.0.0";

const wrong = (code: number) => ({ ok: false, code }) as const;
const done = (code: number): Expected<undefined> => (code === codes.OK ? { ok: true, value: undefined } : wrong(code));

export function masterHandlers(native: NativeMaster, tasks: Tasks): Handlers {
  const noSsd = done(codes.UNABLE_OFFLOAD);
  const noLocalDisk = wrong(codes.SEGMENT_NOT_FOUND);
  const namesOf = () => new Set(segmentRows(native).map((segment) => segment.name));

  /** Where a readable replica lies: its segment's name, and the client that holds it. */
  function holders(key: string, tenant: string): { code: number; held: { name: string; clientID: string }[] } {
    const [code, ...pairs] = native.holdersOf(key, tenant);
    const rows = new Map(segmentRows(native).map((segment) => [segment.number, segment.name]));
    const held: { name: string; clientID: string }[] = [];
    for (let at = 0; at < pairs.length; at += 2) held.push({ name: rows.get(pairs[at] as number) ?? "", clientID: pairs[at + 1] as string });
    return { code, held };
  }

  function createTask(type: number, clientID: string, payload: object): Expected<string> {
    const id = tasks.create(type, clientID, payload);
    return id === undefined ? wrong(codes.TASK_PENDING_LIMIT_EXCEEDED) : { ok: true, value: id };
  }

  /** Pages of keys that fit the pattern. */
  async function* matching(pattern: RegExp, tenant: string): AsyncGenerator<string[]> {
    for (let cursor = 1; cursor !== 0; ) {
      const [next, ...keys] = native.keys(cursor, SLICE, tenant === "" ? "default" : tenant);
      cursor = next;
      yield keys.filter((key) => pattern.test(key));
      await breathe();
    }
  }

  const byName: Handlers["byName"] = {
    MountSegment: (segment, clientID) => done(native.mount(segment, clientID)),
    ReMountSegment: (segments, clientID) => done(native.remount(segments, clientID)),
    UnmountSegment: (id, clientID) => done(native.unmount(id, clientID, 0)),
    GracefulUnmountSegment: (id, clientID, graceMs) => done(native.unmount(id, clientID, Number(graceMs))),

    async GetReplicaListByRegex(text, tenant) {
      const pattern = patternOf(text);
      if (pattern === undefined) return wrong(codes.INVALID_PARAMS);
      const found = new Map<string, readonly Descriptor[]>();
      for await (const keys of matching(pattern, tenant)) {
        for (const key of keys) {
          if (found.size >= MAX_LISTED) return { ok: true, value: found };
          const replicas = descriptorsOf(native, key);
          if (replicas !== undefined) found.set(key, replicas);
        }
      }
      return { ok: true, value: found };
    },
    async RemoveByRegex(text, force, tenant) {
      const pattern = patternOf(text);
      if (pattern === undefined) return wrong(codes.INVALID_PARAMS);
      let removed = 0;
      for await (const keys of matching(pattern, tenant)) {
        const count = native.removeKeys(keys, tenant, force);
        if (count < 0) return wrong(count);
        removed += count;
      }
      return { ok: true, value: BigInt(removed) };
    },
    RemoveAll: async (force, tenant) => BigInt(await removeAll(native, tenant, force)),
    BatchReplicaClear: (keys, clientID, segment) => ({ ok: true, value: native.clearKeys(keys, clientID, segment) }),
    BatchQueryIp(clientIDs) {
      const rows = segmentRows(native);
      const found = new Map<string, string[]>();
      for (const clientID of clientIDs) {
        const hosts = rows.filter((row) => row.clientID === clientID).map((row) => row.endpoint.slice(0, row.endpoint.lastIndexOf(":")));
        if (hosts.length > 0) found.set(clientID, [...new Set(hosts)]);
      }
      return { ok: true, value: found };
    },

    FetchTasks: (clientID, most) => ({ ok: true, value: tasks.fetch(clientID, Number(most)) }),
    MarkTaskToComplete: (clientID, outcome) => done(tasks.complete(clientID, outcome) ? codes.OK : codes.TASK_NOT_FOUND),
    QueryTask(id) {
      const state = tasks.query(id);
      return state === undefined ? wrong(codes.TASK_NOT_FOUND) : { ok: true, value: state };
    },
    CreateCopyTask(key, tenant, targets) {
      const { code, held } = holders(key, tenant);
      if (code !== codes.OK) return wrong(code);
      const names = namesOf();
      const source = held[0];
      if (targets.length === 0 || !targets.every((name) => names.has(name)) || source === undefined) return wrong(codes.INVALID_PARAMS);
      // The members are those that clients of the field read.
      return createTask(taskType.copy, source.clientID, {
        tenant_id: tenant === "" ? "default" : tenant,
        key,
        source: source.name,
        targets,
        dynamic_replication_lease_id_high: 0,
        dynamic_replication_lease_id_low: 0,
        dynamic_replication_version_epoch: 0,
      });
    },
    CreateMoveTask(key, tenant, from, to) {
      const { code, held } = holders(key, tenant);
      if (code !== codes.OK) return wrong(code);
      const names = namesOf();
      if (!names.has(from) || !names.has(to)) return wrong(codes.INVALID_PARAMS);
      const source = held.find(({ name }) => name === from);
      if (source === undefined) return wrong(codes.REPLICA_NOT_FOUND);
      return createTask(taskType.move, source.clientID, { tenant_id: tenant === "" ? "default" : tenant, key, source: from, target: to });
    },

    QuerySegmentStatus(name) {
      const row = segmentRows(native).find((segment) => segment.name === name);
      return row === undefined ? wrong(codes.SEGMENT_NOT_FOUND) : { ok: true, value: row.state };
    },
    QuerySegmentStatusById(id) {
      const row = segmentRows(native).find((segment) => segment.id === id);
      return row === undefined ? wrong(codes.SEGMENT_NOT_FOUND) : { ok: true, value: row.state };
    },
    BatchEvictDiskReplica: (_clientID, keys) => keys.map(() => wrong(codes.OBJECT_NOT_FOUND)),
  };
  const constants: Handlers["constants"] = {
    ServiceReady: { ok: true, value: HANDSHAKE_VERSION },
    GetFsdir: { ok: true, value: "" },
    GetStorageConfig: { ok: true, value: { root: "", evictsDisk: true, quotaBytes: 0n } },
    MountLocalDiskSegment: noSsd,
    UnmountLocalDiskSegment: noSsd,
    OffloadObjectHeartbeat: noLocalDisk,
    PollRemoveAll: noLocalDisk,
    PromotionObjectHeartbeat: noLocalDisk,
    ReportSsdCapacity: noLocalDisk,
    NotifyOffloadSuccess: done(codes.OK),
    PromotionAllocStart: wrong(codes.OBJECT_NOT_FOUND),
    NotifyPromotionSuccess: done(codes.OBJECT_NOT_FOUND),
    NotifyPromotionFailure: done(codes.OBJECT_NOT_FOUND),
    EvictDiskReplica: done(codes.OBJECT_NOT_FOUND),
  };
  return { byName, constants };
}

/** How many objects went, or an error code; in slices, so that others are answered meanwhile. */
export async function removeAll(native: NativeMaster, tenant: string, force: boolean): Promise<number> {
  let total = 0;
  for (let cursor = 1; cursor !== 0; ) {
    const [next, removed] = native.removeSome(cursor, SLICE, tenant, force);
    if (next < 0) return removed;
    total += removed;
    cursor = next;
    await breathe();
  }
  return total;
}

type ReplicaRow = { size_: number; buffer_address_: string; protocol_: string; transport_endpoint_: string };

/** Without leases, as a listing for people and tools is. */
function descriptorsOf(native: NativeMaster, key: string): readonly Descriptor[] | undefined {
  const found = native.replicas(key);
  if (typeof found === "number") return undefined;
  // Addresses have 64 bits, which JSON's numbers have not.
  const rows = JSON.parse(found.replace(/"buffer_address_":(\d+)/g, '"buffer_address_":"$1"')) as ReplicaRow[];
  return rows.map((row, index) => ({
    id: BigInt(index + 1),
    place: {
      type: "memory",
      buffer: { sizeBytes: BigInt(row.size_), address: BigInt(row.buffer_address_), protocol: row.protocol_, endpoint: row.transport_endpoint_ },
    },
    status: 3,
  }));
}
