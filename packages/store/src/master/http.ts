// The master's HTTP: the specification's paths, content types, bodies and errors, and Mooncake's with --compat.

import { setImmediate as breathe } from "node:timers/promises";
import { asFailure } from "@svc/contract/failures.ts";
import { PAGE_TYPE } from "@svc/kit/home-page.ts";
import type { Answer, Request } from "@svc/kit/http/exchange.ts";
import type { Ha } from "../ha/ha.ts";
import { codes } from "../rpc/codes.ts";
import { type ApiParts, apiRoutes, failed, json, refuseTenant, statusName } from "./api.ts";
import { haRoutes, haSummary } from "./ha-http.ts";
import { admit, type HttpAccess } from "./http-access.ts";
import { coreMetrics, type NativeMaster, type SegmentRow, segmentRows } from "./native.ts";
import { masterPage } from "./page.ts";
import { decodeText, ownMembers, searchOf } from "./query.ts";

const JSON_TYPE = "application/json; charset=utf-8";
const METRICS_TYPE = "text/plain; version=0.0.4";
const TEXT_TYPE = "text/plain; charset=utf-8";
/** The number of records that are examined between two pauses for the event loop. */
const SLICE = 20_000;
/** The number of records that are examined for one page of objects. */
const MAX_PAGE = 10_000;

export type State = { readonly serving: boolean; readonly trouble: string; readonly damaged: readonly string[] };

export type HttpParts = ApiParts & {
  readonly version: { readonly version: string; readonly display_version: string };
  /** True if KV events are on. */
  readonly publishes: boolean;
  serving(): boolean;
  state(): State;
  /** Set if this master is one of several. */
  readonly ha: Ha | undefined;
  /** If undefined, access control is off. */
  readonly access: HttpAccess | undefined;
  metrics(): Promise<string>;
  summary(): string;
};

type Route = (search: string, parts: HttpParts, request: Request) => Answer | Promise<Answer>;
/** The routes by method and path, each with one sentence for the API page. */
type Routes = Readonly<Record<string, readonly [does: string, route: Route]>>;

const rawJson = (text: string): Answer => ({ status: 200, type: JSON_TYPE, body: Buffer.from(text) });
const text = (body: string | Buffer, type = METRICS_TYPE, status = 200): Answer => ({ status, type, body: Buffer.from(body as string, "latin1") });
const inactive = () => json({ success: false, error_code: codes.UNAVAILABLE_IN_CURRENT_MODE, error_message: "service plane is not active" }, 503);

function health(_search: string, { state, compat, ha, native }: HttpParts): Answer {
  const { serving, trouble } = state();
  const isLeader = ha?.isLeader ?? true;
  const haState = ha?.state ?? (serving ? "serving" : "recovering");
  if (compat)
    return json({
      status: serving || !isLeader ? "ok" : "recovering",
      role: isLeader ? "leader" : "standby",
      ha_state: haState,
      service_ready: serving,
      leader_address: ha?.leaderView.leader_address ?? null,
      view_version: ha?.leaderView.view_version ?? null,
    });
  // A standby is healthy; the remaining checks concern its leader.
  if (!isLeader) return text("OK");
  if (serving && ha !== undefined && !native.leased()) return text(`nothing is answered about keys: ${notLeased(ha)}`, METRICS_TYPE, 503);
  if (!serving) return text("recovering: the log is being read", METRICS_TYPE, 503);
  if (trouble !== "") return text(trouble, METRICS_TYPE, 503);
  return text("OK");
}

function queryKey(search: string, { native }: HttpParts): Answer {
  const [status, body] = native.queryKey(search);
  return { status, type: JSON_TYPE, body };
}

function batchQueryKeys(search: string, { native }: HttpParts): Answer {
  // Split on commas before decoding, so that a key may contain an encoded comma.
  const given = searchOf(search, "keys", false) ?? "";
  if (given === "") return json({ success: false, error: "No keys provided. Use ?keys=key1,key2,..." }, 400);
  const keys = [...new Set(given.split(",").map(decodeText))].sort();
  const tenant = searchOf(search, "tenant_id") ?? "";
  const entries = keys.map((key) => `${JSON.stringify(Buffer.from(key, "latin1").toString())}:${native.entry(key, tenant)}`);
  return rawJson(`{"success":true,"data":{${entries.join(",")}}}`);
}

async function allKeys(search: string, { native }: HttpParts): Promise<Answer> {
  const limit = Number(searchOf(search, "limit") ?? Infinity);
  const after = Number(searchOf(search, "after") ?? 0);
  if (!(limit > 0)) return failed(codes.INVALID_PARAMS, "limit: expected a number above 0");
  if (!Number.isInteger(after) || after < 0) return failed(codes.INVALID_PARAMS, "after: expected a cursor from X-Next-After, a whole number");
  const pages: Buffer[] = [];
  let count = 0;
  let leftOut = 0;
  let cursor = Math.max(1, after);
  while (cursor !== 0 && count < limit) {
    const [next, ...all] = native.keys(cursor, SLICE, searchOf(search, "tenant_id") ?? "", Math.min(SLICE, limit - count));
    // A key with a line break would read as several keys that do not exist; GET /api/v1/objects lists it.
    const keys = all.filter((key) => !key.includes("\n"));
    cursor = next;
    count += keys.length;
    leftOut += all.length - keys.length;
    if (keys.length > 0) pages.push(Buffer.from(`${keys.join("\n")}\n`, "latin1"));
    await breathe();
  }
  const headers = { ...(cursor === 0 ? {} : { "X-Next-After": String(cursor) }), ...(leftOut === 0 ? {} : { "X-Keys-Left-Out": String(leftOut) }) };
  return { ...text(""), body: Buffer.concat(pages), headers };
}

/** Lists objects with their metadata; `next` is the cursor of the next page, or null. Only the last page may be empty. */
async function listObjects(search: string, { native }: HttpParts): Promise<Answer> {
  const limit = Number(searchOf(search, "limit") ?? MAX_PAGE);
  const after = Number(searchOf(search, "after") ?? 0);
  if (!(limit >= 1 && limit <= MAX_PAGE)) return failed(codes.INVALID_PARAMS, `limit: expected a number from 1 to ${MAX_PAGE}`);
  if (!Number.isInteger(after) || after < 0) return failed(codes.INVALID_PARAMS, "after: expected a cursor from next, a whole number");
  const objects: string[] = [];
  let cursor = Math.max(1, after);
  while (cursor !== 0 && objects.length < limit) {
    const [next, ...found] = native.objects(cursor, SLICE, searchOf(search, "tenant_id") ?? "", limit - objects.length);
    objects.push(...found);
    cursor = next;
    await breathe();
  }
  const body = `{"objects":[${objects.join(",")}],"next":${cursor === 0 ? null : cursor}}`;
  return { status: 200, type: JSON_TYPE, body: Buffer.from(body, "latin1") };
}

function querySegment(search: string, { native, compat }: HttpParts): Answer {
  const name = searchOf(search, "segment") ?? "";
  const rows = segmentRows(native).filter((row) => row.name === name);
  if (rows.length === 0) return text("Failed to query segment", METRICS_TYPE, compat ? 500 : 404);
  const sum = (of: (row: SegmentRow) => string) => rows.reduce((total, row) => total + BigInt(of(row)), 0n);
  const colon = compat ? " : " : ": ";
  return text(`${name}\nUsed(bytes): ${sum((row) => row.usedBytes)}\nCapacity(bytes)${colon}${sum((row) => row.sizeBytes)}\n`);
}

/** Formats an id like Mooncake: two decimal numbers. */
const decimalPair = (id: string) => {
  const hex = id.replaceAll("-", "");
  return `${BigInt(`0x${hex.slice(0, 16)}`)}-${BigInt(`0x${hex.slice(16)}`)}`;
};

function segmentsDetail(_search: string, { native, compat }: HttpParts): Answer {
  const id = (given: string) => (compat ? decimalPair(given) : given);
  const segments = segmentRows(native).map((row) => {
    const [used, size] = [Number(row.usedBytes), Number(row.sizeBytes)];
    return {
      segment_name: row.name,
      segment_id: id(row.id),
      client_id: id(row.clientID),
      base_address: `0x${BigInt(row.base).toString(16)}`,
      size_bytes: size,
      size_human: `${Number((size / 2 ** 30).toPrecision(6))} GiB`,
      te_endpoint: row.endpoint,
      protocol: row.protocol,
      status: statusName(row.state, compat),
      allocator_used_bytes: used,
      allocator_capacity_bytes: size,
      allocator_usage_percent: size === 0 ? 0 : (used / size) * 100,
      // `awaited`: its holder has not come back since the master's start.
      ...(compat ? {} : { readable: !row.awaiting && !row.silent && !row.unreachable, ...(row.awaiting ? { awaited: true } : {}) }),
    };
  });
  return json({ total_segments: segments.length, segments });
}

function eventStatus(_search: string, { native, publishes }: HttpParts): Answer {
  const core = coreMetrics(native);
  return json({
    enabled: publishes,
    published_batches: core.eventBatches,
    published_events: core.events,
    dropped_events: core.eventsDropped,
    skipped_unparsed_keys: core.keysUnparsed,
  });
}

/** Routes that cannot answer before the log is read. */
const serving: Routes = {
  "GET /query_key": ["Where the object of ?key=KEY lies; ?tenant_id=NAME, as everywhere", queryKey],
  "GET /batch_query_keys": ["Where the objects of ?keys=KEY,KEY lie", batchQueryKeys],
  "GET /get_all_keys": [
    "All keys without line breaks, a line each, others counted in X-Keys-Left-Out; ?limit=COUNT, and ?after= with the header X-Next-After of the page before",
    allKeys,
  ],
  "GET /get_all_segments": [
    "The names of all segments, a line each",
    (_search, { native }) =>
      text(
        segmentRows(native)
          .map((row) => `${row.name}\n`)
          .join(""),
      ),
  ],
  "GET /query_segment": ["Used bytes and capacity of the segment named by ?segment=NAME", querySegment],
  "GET /api/v1/objects": ["Objects with what their writers said of them; ?limit=COUNT and ?after=CURSOR", listObjects],
  "GET /get_segments_detail": ["All segments with address, state and use", segmentsDetail],
  "GET /api/v1/disks": [
    "Disks of clients, and the folder that they share, with their contents",
    (_search, { native }) => rawJson(`{"disks":${native.disks()},"shared_folder":${native.sharedFolder() || "null"}}`),
  ],
  ...apiRoutes,
};
const always: Routes = {
  "GET /": ["This page", () => text(page, PAGE_TYPE)],
  "GET /metrics": ["Metrics for Prometheus", async (_search, parts) => text(await parts.metrics())],
  "GET /metrics/summary": ["The same in one line for people", (_search, parts) => text(`${parts.summary()}\n`)],
  "GET /health": ["200 while it serves, or stands by; else 503 with the reason", health],
  "GET /version": ["The version that clients compare", (_search, { version }) => json(version)],
  "GET /role": ["leader or standby", (_search, { ha }) => text((ha?.isLeader ?? true) ? "leader" : "standby", TEXT_TYPE)],
  "GET /ha_status": [
    "The state of this master: serving, recovering, or a standby's",
    (_search, { state, ha }) => text(ha?.state ?? (state().serving ? "serving" : "recovering"), TEXT_TYPE),
  ],
  "GET /leader": ["The address of the leader", (_search, { ha }) => json(ha?.leaderView ?? { present: false, leader_address: null, view_version: null })],
  ...haRoutes,
  "GET /kv_events/status": ["KV events that were published and dropped", eventStatus],
};

const page = masterPage(Object.entries({ ...serving, ...always }).map(([route, [does]]) => [route, does] as const));
const paths = new Set([...Object.keys(serving), ...Object.keys(always)].map((name) => name.slice(name.indexOf(" ") + 1)));

/** Groups unknown paths, so that requests cannot create arbitrary metric labels. */
export function knownPath(target: string): string {
  const mark = target.indexOf("?");
  const path = mark < 0 ? target : target.slice(0, mark);
  return paths.has(path) ? path : "other";
}

export function answerHttp(request: Request, parts: HttpParts): Answer | Promise<Answer> {
  const mark = request.target.indexOf("?");
  const path = mark < 0 ? request.target : request.target.slice(0, mark);
  const given = mark < 0 ? "" : request.target.slice(mark + 1);
  const search = parts.access === undefined ? given : admit(parts.access, request, path, given);
  if (typeof search !== "string") return search;
  const name = `${request.method === "HEAD" ? "GET" : request.method} ${path}`;
  const open = ownMembers(always, name)?.[1];
  if (open !== undefined) return open(search, parts, request);
  const route = ownMembers(serving, name)?.[1];
  if (route === undefined) return text("404 Not Found", TEXT_TYPE, 404);
  const refused = refuseTenant(search, parts.multiTenant);
  if (refused !== undefined) return refused;
  if (!parts.serving()) return inactive();
  if (parts.ha !== undefined && !parts.native.leased())
    return json({ success: false, error_code: codes.UNAVAILABLE_IN_CURRENT_STATUS, error_message: notLeased(parts.ha) }, 503);
  return route(search, parts, request);
}

export function refuseHttp(error: unknown): Answer {
  const failure = asFailure(error);
  return json(
    { success: false, error_code: failure.row.http < 500 ? codes.INVALID_PARAMS : codes.INTERNAL_ERROR, error_message: failure.message },
    failure.row.http,
  );
}

/** Returns the reason why a leader without a lease does not answer. */
const notLeased = ({ trouble }: Ha) => trouble || "neither a standby of the set nor etcd answers, or the lead is being handed over";

export function summaryOf(native: NativeMaster, state: State, ha: Ha | undefined): string {
  const role = (ha?.isLeader ?? true) ? "leader" : "standby";
  if (!state.serving) return `role=${role}, state=${ha?.state ?? "recovering"}, service_ready=false${haSummary(ha)}`;
  const core = coreMetrics(native);
  const percent = core.capacityBytes === 0 ? 0 : (100 * core.usedBytes) / core.capacityBytes;
  const clients = new Set(segmentRows(native).map((row) => row.clientID)).size;
  return [
    `role=leader, state=serving, service_ready=true${haSummary(ha)}`,
    `Mem Storage: ${core.usedBytes} B / ${core.capacityBytes} B (${percent.toFixed(1)}%)`,
    `Keys: ${core.objects} (unfinished: ${core.unfinished})`,
    `Clients: ${clients}`,
    `Eviction: runs=${core.evictions}, keys=${core.evictedObjects}, size=${core.evictedBytes} B`,
    `Discard: ${core.discarded}`,
    `Disks: ${core.diskUsedBytes} B / ${core.diskCapacityBytes} B (waiting: ${core.offloadsWaiting}, promoted: ${core.promotedObjects})`,
    ...(core.folderFiles + core.filedObjects === 0
      ? []
      : [`Shared folder: ${core.folderUsedBytes} B / ${core.folderQuotaBytes} B (files: ${core.folderFiles})`]),
    ...(core.nofCapacityBytes === 0 ? [] : [`NVMe-oF SSD: ${core.nofUsedBytes} B / ${core.nofCapacityBytes} B (evicted: ${core.nofEvictedObjects})`]),
    `Log: records=${core.lsn}, durable=${core.durableLsn}, snapshots=${core.snapshots}`,
  ].join(" | ");
}
