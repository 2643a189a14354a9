// The master's HTTP: the specification's paths, content types, bodies and errors, and the field's where --compat asks for them.
import { setImmediate as breathe } from "node:timers/promises";
import { asFailure } from "@svc/contract/failures.ts";
import type { Request } from "../http/request.ts";
import type { Answer } from "../http/server.ts";
import { codeName, codes } from "../rpc/codes.ts";
import { removeAll } from "./handlers.ts";
import { figuresOf, type NativeMaster, type SegmentRow, segmentRows } from "./native.ts";
import { decodeText, ownMembers, searchOf } from "./query.ts";

const JSON_TYPE = "application/json; charset=utf-8";
const METRICS_TYPE = "text/plain; version=0.0.4";
const TEXT_TYPE = "text/plain; charset=utf-8";
/** Records looked at between two breaths of the event loop. */
const SLICE = 20_000;

export type State = { readonly serving: boolean; readonly trouble: string; readonly damaged: readonly string[] };

export type HttpParts = {
  readonly native: NativeMaster;
  readonly compat: boolean;
  readonly version: { readonly version: string; readonly display_version: string };
  readonly multiTenant: boolean;
  serving(): boolean;
  state(): State;
  metrics(): Promise<string>;
  summary(): string;
  /** Resolves once all that was changed until now is kept. */
  whenDurable(): Promise<void>;
};

type Route = (search: string, parts: HttpParts) => Answer | Promise<Answer>;

const json = (value: unknown, status = 200): Answer => ({ status, type: JSON_TYPE, body: Buffer.from(JSON.stringify(value)) });
const rawJson = (text: string): Answer => ({ status: 200, type: JSON_TYPE, body: Buffer.from(text) });
const text = (body: string | Buffer, type = METRICS_TYPE, status = 200): Answer => ({ status, type, body: Buffer.from(body as string, "latin1") });
const inactive = () => json({ success: false, error_code: codes.UNAVAILABLE_IN_CURRENT_MODE, error_message: "service plane is not active" }, 503);
const notFound = () => json({ success: false, error_code: codes.OBJECT_NOT_FOUND, error_message: "OBJECT_NOT_FOUND" }, 404);

/** Errors under /api/v1, by their code. */
function failed(code: number, message = codeName(code)): Answer {
  const notFounds: number[] = [codes.JOB_NOT_FOUND, codes.SEGMENT_NOT_FOUND, codes.OBJECT_NOT_FOUND, codes.TENANT_NOT_REGISTERED];
  const conflicts: number[] = [codes.UNAVAILABLE_IN_CURRENT_STATUS, codes.UNAVAILABLE_IN_CURRENT_MODE, codes.TENANT_NOT_EMPTY];
  const status =
    code === codes.INVALID_PARAMS ? 400 : notFounds.includes(code) ? 404 : conflicts.includes(code) ? 409 : code === codes.PERSISTENT_FAIL ? 507 : 500;
  return json({ success: false, error_code: code, error_message: message }, status);
}

function health(_search: string, { state, compat }: HttpParts): Answer {
  const { serving, trouble, damaged } = state();
  if (compat)
    return json({
      status: serving ? "ok" : "recovering",
      role: "leader",
      ha_state: serving ? "serving" : "recovering",
      service_ready: serving,
      leader_address: null,
      view_version: null,
    });
  if (!serving) return text("recovering: the log is being read", METRICS_TYPE, 503);
  if (trouble !== "") return text(trouble, METRICS_TYPE, 503);
  return text(damaged.length === 0 ? "OK" : `OK\nthese files of the log were damaged and set aside: ${damaged.join(", ")}`);
}

function queryKey(search: string, { native }: HttpParts): Answer {
  const key = searchOf(search, "key") ?? "";
  if (key === "") return notFound();
  const found = native.replicas(key);
  if (typeof found === "string") return rawJson(`{"success":true,"data":${found}}`);
  return found === codes.OBJECT_NOT_FOUND ? notFound() : json({ success: false, error_code: found, error_message: codeName(found) }, 404);
}

function batchQueryKeys(search: string, { native }: HttpParts): Answer {
  // Split on commas before decoding, so that a key may hold an encoded one.
  const given = searchOf(search, "keys", false) ?? "";
  if (given === "") return json({ success: false, error: "No keys provided. Use ?keys=key1,key2,..." }, 400);
  const keys = [...new Set(given.split(",").map(decodeText))].sort();
  const entries = keys.map((key) => `${JSON.stringify(Buffer.from(key, "latin1").toString())}:${native.entry(key)}`);
  return rawJson(`{"success":true,"data":{${entries.join(",")}}}`);
}

async function allKeys(search: string, { native }: HttpParts): Promise<Answer> {
  const limit = Number(searchOf(search, "limit") ?? Infinity);
  const after = Number(searchOf(search, "after") ?? 0);
  if (!(limit > 0) || !Number.isInteger(after) || after < 0) return failed(codes.INVALID_PARAMS, "limit must be above 0, after a cursor from X-Next-After");
  const pages: Buffer[] = [];
  let count = 0;
  let cursor = Math.max(1, after);
  while (cursor !== 0 && count < limit) {
    const [next, ...keys] = native.keys(cursor, Math.min(SLICE, limit - count), "");
    cursor = next;
    count += keys.length;
    if (keys.length > 0) pages.push(Buffer.from(`${keys.join("\n")}\n`, "latin1"));
    await breathe();
  }
  return { ...text(""), body: Buffer.concat(pages), ...(cursor === 0 ? {} : { headers: { "X-Next-After": String(cursor) } }) };
}

function querySegment(search: string, { native, compat }: HttpParts): Answer {
  const name = searchOf(search, "segment") ?? "";
  const rows = segmentRows(native).filter((row) => row.name === name);
  if (rows.length === 0) return text("Failed to query segment", METRICS_TYPE, 500);
  const sum = (of: (row: SegmentRow) => string) => rows.reduce((total, row) => total + BigInt(of(row)), 0n);
  const colon = compat ? " : " : ": ";
  return text(`${name}\nUsed(bytes): ${sum((row) => row.usedBytes)}\nCapacity(bytes)${colon}${sum((row) => row.sizeBytes)}\n`);
}

const statusNames = ["UNDEFINED", "MOUNTED", "DRAINING", "DRAINED", "GRACEFULLY_UNMOUNTING", "UNMOUNTING"];
const statusName = (state: number, compat: boolean) => (compat && state === 1 ? "OK" : (statusNames[state] ?? "UNDEFINED"));
/** Upstream's form of an id: two decimal numbers. */
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
      ...(compat ? {} : { readable: !row.awaiting && !row.silent && !row.unreachable }),
    };
  });
  return json({ total_segments: segments.length, segments });
}

function segmentStatus(search: string, { native, compat }: HttpParts): Answer {
  const name = searchOf(search, "segment") ?? "";
  if (name === "") return failed(codes.INVALID_PARAMS, "Missing segment query parameter");
  const row = segmentRows(native).find((each) => each.name === name);
  if (row === undefined) return failed(codes.SEGMENT_NOT_FOUND);
  return json({ success: true, segment: name, status: row.state, status_name: statusName(row.state, compat), error_code: 0, error_message: "" });
}

async function removeAllRoute(search: string, { native, whenDurable }: HttpParts): Promise<Answer> {
  const removed = await removeAll(native, searchOf(search, "tenant_id") ?? "", searchOf(search, "force") === "true");
  if (removed < 0) return failed(removed);
  await whenDurable();
  return json({ success: true, removed_count: removed });
}

const noTenants: Route = () => failed(codes.UNAVAILABLE_IN_CURRENT_MODE, "tenants are off: setting store.enable_multi_tenants");

/** Before the log was read these have nothing to say. */
const serving: Record<string, Route> = {
  "GET /query_key": queryKey,
  "GET /batch_query_keys": batchQueryKeys,
  "GET /get_all_keys": allKeys,
  "GET /get_all_segments": (_search, { native }) =>
    text(
      segmentRows(native)
        .map((row) => `${row.name}\n`)
        .join(""),
    ),
  "GET /query_segment": querySegment,
  "GET /get_segments_detail": segmentsDetail,
  "GET /api/v1/segments/status": segmentStatus,
  "POST /api/v1/remove_all": removeAllRoute,
  "GET /api/v1/tenant_quotas": noTenants,
  "PUT /api/v1/tenant_quotas": noTenants,
  "DELETE /api/v1/tenant_quotas": noTenants,
};
const always: Record<string, Route> = {
  "GET /metrics": async (_search, parts) => text(await parts.metrics()),
  "GET /metrics/summary": (_search, parts) => text(`${parts.summary()}\n`),
  "GET /health": health,
  "GET /version": (_search, { version }) => json(version),
  "GET /role": () => text("leader", TEXT_TYPE),
  "GET /ha_status": (_search, { state }) => text(state().serving ? "serving" : "recovering", TEXT_TYPE),
  "GET /leader": () => json({ present: false, leader_address: null, view_version: null }),
  "GET /kv_events/status": () => json({ enabled: false, published_batches: 0, published_events: 0, dropped_events: 0, skipped_unparsed_keys: 0 }),
};

const paths = new Set([...Object.keys(serving), ...Object.keys(always)].map((name) => name.slice(name.indexOf(" ") + 1)));

/** A path that no route has would make a label of whatever was asked. */
export function knownPath(target: string): string {
  const mark = target.indexOf("?");
  const path = mark < 0 ? target : target.slice(0, mark);
  return paths.has(path) ? path : "other";
}

export function answerHttp(request: Request, parts: HttpParts, done: (answer: Answer) => void): void {
  const mark = request.target.indexOf("?");
  const path = mark < 0 ? request.target : request.target.slice(0, mark);
  const search = mark < 0 ? "" : request.target.slice(mark + 1);
  try {
    const name = `${request.method} ${path}`;
    let route = ownMembers(always, name);
    if (route === undefined) {
      route = ownMembers(serving, name);
      if (route !== undefined && !parts.serving()) {
        done(inactive());
        return;
      }
    }
    const answer = route === undefined ? text("404 Not Found", TEXT_TYPE, 404) : route(search, parts);
    if (answer instanceof Promise) answer.then(done, (error) => done(refuseHttp(error)));
    else done(answer);
  } catch (error) {
    done(refuseHttp(error));
  }
}

export function refuseHttp(error: unknown): Answer {
  const failure = asFailure(error);
  return json(
    { success: false, error_code: failure.row.http < 500 ? codes.INVALID_PARAMS : codes.INTERNAL_ERROR, error_message: failure.message },
    failure.row.http,
  );
}

/** One line for people: what is held, by whom, and what became of it. */
export function summaryOf(native: NativeMaster, state: State): string {
  if (!state.serving) return "role=leader, state=recovering, service_ready=false";
  const figures = figuresOf(native);
  const percent = figures.capacityBytes === 0 ? 0 : (100 * figures.usedBytes) / figures.capacityBytes;
  const clients = new Set(segmentRows(native).map((row) => row.clientID)).size;
  return [
    "role=leader, state=serving, service_ready=true",
    `Mem Storage: ${figures.usedBytes} B / ${figures.capacityBytes} B (${percent.toFixed(1)}%)`,
    `Keys: ${figures.objects} (unfinished: ${figures.unfinished})`,
    `Clients: ${clients}`,
    `Eviction: runs=${figures.evictions}, keys=${figures.evictedObjects}, size=${figures.evictedBytes} B`,
    `Discard: ${figures.discarded}`,
    `Log: records=${figures.lsn}, durable=${figures.durableLsn}, snapshots=${figures.snapshots}`,
  ].join(" | ");
}
