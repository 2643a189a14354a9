// The operations that are answered in TypeScript: holders, tasks, patterns, and removing everything.
import { setImmediate as breathe } from "node:timers/promises";
import type { Log } from "@svc/kit/log.ts";
import { codes } from "../rpc/codes.ts";
import type { ArgsOf, OperationName, ResultOf } from "../rpc/operations.ts";
import { splitScope } from "../rpc/scope.ts";
import type { Descriptor, Route, StorageConfig } from "../rpc/shapes.ts";
import { HANDSHAKE_VERSION } from "../rpc/version.ts";
import { coldHandlers, coldRows } from "./cold-handlers.ts";
import { descriptorsFrom, diskHandlers } from "./disk-handlers.ts";
import type { Members } from "./members.ts";
import { mooncakeHandlers } from "./mooncake-handlers.ts";
import { type NativeMaster, segmentRows } from "./native.ts";
import { done, wrong } from "./outcome.ts";
import { patternOf } from "./pattern.ts";
import { type Tasks, taskType } from "./tasks.ts";

/** The number of records that are examined between two pauses for the event loop. */
const SLICE = 5_000;
/** Bounds the replica descriptors in the answer to a pattern. */
const MAX_LISTED = 100_000;

type Handler<N extends OperationName> = (...args: ArgsOf<N>) => ResultOf<N> | Promise<ResultOf<N>>;
export type Handlers = {
  readonly byName: { readonly [N in OperationName]?: Handler<N> };
  /** Answers that never change. */
  readonly constants: { readonly [N in OperationName]?: ResultOf<N> };
};

export type HandlerParts = {
  readonly native: NativeMaster;
  readonly log: Log;
  readonly tasks: Tasks;
  readonly members: Members;
  /** This master's stable id. */
  readonly authority: string;
  /** The shared folder as reported to clients. */
  readonly storage: StorageConfig;
  readonly multiTenant: boolean;
  readonly brands: readonly string[];
};

export function masterHandlers({ native, log, tasks, members, authority, storage, multiTenant, brands }: HandlerParts): Handlers {
  const knowsTenant = (name: string) => multiTenant || name === "" || name === "default";
  const namesOf = () => new Set(segmentRows(native).map((segment) => segment.name));

  /** Returns the locations of readable replicas: the segment's name, and the client that holds it. */
  function holders(key: string, tenant: string): { code: number; found: { name: string; clientID: string }[] } {
    const { code, holders: known } = native.holdersOf(key, tenant);
    const rows = new Map(segmentRows(native).map((segment) => [segment.number, segment.name]));
    return { code, found: known.map(({ segment, clientID }) => ({ name: rows.get(segment) ?? "", clientID })) };
  }

  /** Yields pages of keys that match the pattern within the scope that its text begins with. */
  async function* matching(scope: string, pattern: RegExp, tenant: string): AsyncGenerator<string[]> {
    for (let cursor = 1; cursor !== 0; ) {
      const [next, ...keys] = native.keys(cursor, SLICE, tenant === "" ? "default" : tenant, SLICE);
      cursor = next;
      yield keys.filter((key) => {
        const own = splitScope(key);
        return own.prefix === scope && pattern.test(own.key);
      });
      await breathe();
    }
  }

  function stateOf(id: string): ResultOf<"QueryTask"> {
    const state = tasks.query(id);
    return state === undefined ? wrong(codes.TASK_NOT_FOUND) : { ok: true, value: state };
  }

  const byName: Handlers["byName"] = {
    MountSegment: (segment, clientID) => done(native.mount(segment, clientID)),
    ReMountSegment: (segments, clientID) => done(native.remount(segments, clientID)),
    UnmountSegment: (id, clientID) => done(native.unmount(id, clientID, 0)),
    GracefulUnmountSegment: (id, clientID, graceMs) => done(native.unmount(id, clientID, Number(graceMs))),

    async GetReplicaListByRegex(text, tenant) {
      const { prefix, key } = splitScope(text);
      const pattern = patternOf(key);
      if (pattern === undefined) return wrong(codes.INVALID_PARAMS);
      const found = new Map<string, readonly Descriptor[]>();
      for await (const keys of matching(prefix, pattern, tenant)) {
        for (const key of keys) {
          if (found.size >= MAX_LISTED) return { ok: true, value: found };
          const replicas = descriptorsOf(native, key, tenant);
          if (replicas.length > 0) found.set(key, replicas);
        }
      }
      return { ok: true, value: found };
    },
    async RemoveByRegex(text, force, tenant) {
      const { prefix, key } = splitScope(text);
      const pattern = patternOf(key);
      if (pattern === undefined) return wrong(codes.INVALID_PARAMS);
      let removed = 0;
      for await (const keys of matching(prefix, pattern, tenant)) {
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
        const hosts = rows.filter((row) => row.clientID === clientID && !row.nof).map((row) => row.endpoint.slice(0, row.endpoint.lastIndexOf(":")));
        if (hosts.length > 0) found.set(clientID, [...new Set(hosts)]);
      }
      return { ok: true, value: found };
    },

    FetchTasks: (clientID, most) => ({ ok: true, value: tasks.fetch(clientID, Number(most)) }),
    MarkTaskToComplete: (clientID, outcome) => done(tasks.complete(clientID, [outcome])[0] === true ? codes.OK : codes.TASK_NOT_FOUND),
    CompleteTasks(clientID, outcomes) {
      tasks.complete(clientID, outcomes);
      return done(codes.OK);
    },
    QueryTask: (id) => stateOf(id),
    QueryTasks: (ids) => ids.map(stateOf),
    CreateCopyTask(key, tenant, targets) {
      const { code, found } = holders(key, tenant);
      if (code !== codes.OK) return wrong(code);
      const names = namesOf();
      const source = found[0];
      if (targets.length === 0 || !targets.every((name) => names.has(name)) || source === undefined) return wrong(codes.INVALID_PARAMS);
      // The payload has the members that Mooncake's clients read.
      return tasks.create(taskType.copy, source.clientID, {
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
      const { code, found } = holders(key, tenant);
      if (code !== codes.OK) return wrong(code);
      const names = namesOf();
      if (from === to || !names.has(from) || !names.has(to)) return wrong(codes.INVALID_PARAMS);
      const source = found.find(({ name }) => name === from);
      if (source === undefined) return wrong(codes.REPLICA_NOT_FOUND);
      return tasks.create(taskType.move, source.clientID, { tenant_id: tenant === "" ? "default" : tenant, key, source: from, target: to });
    },

    Announce: (clientID, stableID, epoch) => done(members.announce(clientID, stableID, epoch)),
    Leave(clientID) {
      members.leave(clientID);
      return done(codes.OK);
    },
    ListMembers: () => ({ ok: true, value: { authority, members: members.all() } }),
    FindRoute(key, tenant) {
      const route = knowsTenant(tenant) ? routeOf(native, key, tenant) : undefined;
      return route === undefined ? wrong(codes.OBJECT_NOT_FOUND) : { ok: true, value: route };
    },
    AssignMigration(stableID, epoch, type, key, tenant, source, targets) {
      if (!knowsTenant(tenant)) return wrong(codes.TENANT_NOT_REGISTERED);
      const member = members.find(stableID, epoch);
      if (member === undefined) return wrong(codes.CLIENT_NOT_FOUND);
      if (member === "stale") return wrong(codes.ILLEGAL_CLIENT);
      const known = namesOf();
      if ((type !== taskType.copy && type !== taskType.move) || targets.length === 0 || (type === taskType.move && targets.length > 1))
        return wrong(codes.INVALID_PARAMS);
      const isThere = known.has(source) || coldRows(native).some(({ name }) => name === source);
      if (!isThere || !targets.every((name) => known.has(name))) return wrong(codes.SEGMENT_NOT_FOUND);
      const payload = { tenant_id: tenant === "" ? "default" : tenant, key, source };
      const [target] = targets;
      return tasks.create(type, member.clientID, type === taskType.copy ? { ...payload, targets } : { ...payload, target }, 0);
    },

    QuerySegmentStatus(name) {
      const row = segmentRows(native).find((segment) => segment.name === name);
      return row === undefined ? wrong(codes.SEGMENT_NOT_FOUND) : { ok: true, value: row.state };
    },
    QuerySegmentStatusById(id) {
      const row = segmentRows(native).find((segment) => segment.id === id);
      return row === undefined ? wrong(codes.SEGMENT_NOT_FOUND) : { ok: true, value: row.state };
    },
    ...mooncakeHandlers(native, log),
    ...diskHandlers(native),
    ...coldHandlers(native, tasks, members, knowsTenant),
  };
  const constants: Handlers["constants"] = {
    ServiceReady: { ok: true, value: HANDSHAKE_VERSION },
    GetFsdir: { ok: true, value: storage.root },
    GetStorageConfig: { ok: true, value: storage },
    GetBrands: { ok: true, value: brands },
    HasTenants: { ok: true, value: multiTenant },
  };
  return { byName, constants };
}

/** Returns the number of removed objects, or an error code. Works in slices, so that other requests are answered meanwhile. */
export async function removeAll(native: NativeMaster, tenant: string, force: boolean): Promise<number> {
  let total = 0;
  for (let cursor = 1; cursor !== 0; ) {
    const { code, next, removed } = native.removeSome(cursor, SLICE, tenant, force);
    if (code !== codes.OK) return code;
    total += removed;
    cursor = next;
    await breathe();
  }
  return total;
}

type RouteRow = {
  sizeBytes: string;
  checksum: string | null;
  isMoving: boolean;
  replicas: { segment: string; clientID: string; status: number; address: string; isReadable: boolean }[];
};

function routeOf(native: NativeMaster, key: string, tenant: string): Route | undefined {
  const text = native.route(key, tenant);
  if (text === "") return undefined;
  const { sizeBytes, checksum, isMoving, replicas } = JSON.parse(text) as RouteRow;
  return {
    sizeBytes: BigInt(sizeBytes),
    checksum: checksum === null ? undefined : BigInt(checksum),
    isMoving,
    replicas: replicas.map((replica) => ({ ...replica, address: BigInt(replica.address) })),
  };
}

/** Returns the replicas without taking leases, as a listing for people and tools must. */
const descriptorsOf = (native: NativeMaster, key: string, tenant: string): readonly Descriptor[] => descriptorsFrom(native.descriptors(key, tenant));
