// The indexer's routes: bodies in JSON, msgpack or raw, the native index asked, answers in what the client takes.
import { type QueryAnswer, REGISTERED, UNREGISTERED, unregistration } from "@svc/contract/indexer.ts";
import type { Metrics } from "@svc/kit/metrics.ts";
import { Packr, Unpackr } from "msgpackr";
import { parseExact, writeExact } from "./exact-json.ts";
import { explain, freshnessOf } from "./explain.ts";
import type { Answer, Handler, Request, Routes } from "./http.ts";
import type { NativeIndex } from "./native.ts";
import { type ReadQuery, readQuery, readRaw } from "./query-input.ts";
import { Refusal, refusalOf } from "./refusal.ts";
import { keyOf } from "./register-input.ts";
import type { Registry } from "./registry.ts";
import type { Views } from "./views.ts";

const JSON_TYPE = "application/json";
const MSGPACK_TYPE = "application/msgpack";
const msgpackTypes = [MSGPACK_TYPE, "application/x-msgpack", "application/vnd.msgpack"];
const RAW_TYPE = "application/octet-stream";
const MAX_BATCHED_QUERIES = 1024;

const packr = new Packr({ useRecords: false });
const unpackr = new Unpackr({ useRecords: false, mapsAsObjects: true, int64AsType: "bigint" });

export type RoutesOptions = {
  readonly index: NativeIndex;
  readonly registry: Registry;
  readonly views: Views;
  readonly metrics: Metrics;
  /** Brings the metrics up to date before they are read. */
  readonly collect: () => void;
  readonly snapshot: () => Promise<Buffer>;
  readonly startedAtMs: number;
};

export function indexerRoutes({ index, registry, views, metrics, collect, snapshot, startedAtMs }: RoutesOptions): Routes {
  const ask =
    (byHash: boolean): Handler =>
    (request) => {
      const wantsFreshness = request.search !== "" && /(^|&)freshness=(1|true)(&|$)/.test(request.search);
      if (request.type !== RAW_TYPE && !isMsgpack(request.type)) {
        // The usual case never becomes a JavaScript value.
        const fast = index.answerJson(request.body, byHash);
        if (fast !== undefined && !wantsFreshness && !takesMsgpack(request)) return { body: fast, type: JSON_TYPE };
        if (fast !== undefined) return respond(request, withFreshness(registry, JSON.parse(fast.toString("utf8")) as QueryAnswer, wantsFreshness));
      }
      const read = request.type === RAW_TYPE ? readRaw(request.body, request.search, byHash) : readQuery(readBody(request), byHash);
      // The native answer is JSON already.
      if (!wantsFreshness && !read.freshness && !takesMsgpack(request)) return { body: index.answer(read.query, read.list), type: JSON_TYPE };
      return respond(request, answerOf(index, registry, read, wantsFreshness));
    };

  const queryBatch: Handler = (request) => {
    const queries = (readBody(request) as { queries?: unknown } | null)?.queries;
    if (!Array.isArray(queries)) throw new Refusal("missing", 'queries: asked for {"queries": [query, ...]}', { field: "queries" });
    if (queries.length > MAX_BATCHED_QUERIES)
      throw new Refusal("out_of_range", `queries: found ${queries.length}, ${MAX_BATCHED_QUERIES} are taken at once`, { field: "queries" });
    const results = queries.map((one: unknown) => {
      try {
        return answerOf(index, registry, readQuery(one, isByHash(one)), false);
      } catch (error) {
        if (error instanceof Refusal) return error.body();
        throw error;
      }
    });
    return respond(request, { results });
  };

  const register: Handler = async (request) => {
    const subscription = await registry.register(registry.read(readBody(request)));
    return respond(request, { status: REGISTERED, instance_id: subscription.registration.instance_id });
  };

  const unregister: Handler = async (request) => {
    const body = readBody(request);
    const parsed = unregistration.safeParse(body);
    if (!parsed.success) throw refusalOf(parsed.error, body);
    const key = keyOf({ ...parsed.data, tenant_id: parsed.data.tenant_id || "default" });
    await registry.unregister(key);
    return respond(request, { status: UNREGISTERED, removed_instances: [key] });
  };

  return {
    "/register": { POST: register },
    "/unregister": { POST: unregister },
    "/query": { POST: ask(false) },
    "/query_by_hash": { POST: ask(true) },
    "/query_batch": { POST: queryBatch },
    "/explain": {
      POST: (request) => {
        const body = readBody(request);
        return respond(request, explain(index, registry, views, readQuery(body, isByHash(body))));
      },
    },
    "/services": { GET: async (request) => respond(request, await views.services()) },
    "/global_view": { GET: (request) => respond(request, views.globalView(new URLSearchParams(request.search))) },
    "/snapshot": { GET: async () => ({ body: await snapshot(), type: RAW_TYPE }) },
    "/health": {
      GET: (request) =>
        respond(request, { status: "ok", registrations: registry.subscriptions.size, uptime_seconds: Math.round((Date.now() - startedAtMs) / 1000) }),
    },
    "/metrics": {
      GET: async () => {
        collect();
        return { body: await metrics.text(), type: metrics.contentType };
      },
    },
  };
}

function answerOf(index: NativeIndex, registry: Registry, { query, list, freshness }: ReadQuery, wantsFreshness: boolean): QueryAnswer {
  const answer = JSON.parse(index.answer(query, list).toString("utf8")) as QueryAnswer;
  return withFreshness(registry, answer, wantsFreshness || freshness);
}

function withFreshness(registry: Registry, answer: QueryAnswer, wanted: boolean): QueryAnswer {
  if (!wanted) return answer;
  for (const [tenant, instances] of Object.entries(answer))
    for (const [instance, match] of Object.entries(instances)) match.freshness = freshnessOf(registry, tenant, instance);
  return answer;
}

function isByHash(query: unknown): boolean {
  return typeof query === "object" && query !== null && ("seq_hashes" in query || "block_hash" in query);
}

function isMsgpack(type: string): boolean {
  return msgpackTypes.includes(type);
}

function takesMsgpack({ accept, type }: Request): boolean {
  return msgpackTypes.some((name) => accept.includes(name)) || (isMsgpack(type) && !accept.includes(JSON_TYPE));
}

/** The content type is looked at for msgpack only: everything else is read as JSON, as clients of this API expect. */
function readBody(request: Request): unknown {
  if (isMsgpack(request.type)) {
    try {
      return safe(unpackr.unpack(request.body));
    } catch (error) {
      throw new Refusal("invalid_msgpack", `the body is no msgpack: ${(error as Error).message}`);
    }
  }
  try {
    return parseExact(request.body.toString("utf8"));
  } catch (error) {
    throw new Refusal("invalid_json", `the body is no JSON: ${(error as Error).message}`);
  }
}

/** 64-bit msgpack integers that fit become numbers, as small ones are. */
function safe(value: unknown): unknown {
  if (typeof value === "bigint") return value >= 0n && value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value;
  if (Array.isArray(value)) return value.map(safe);
  if (typeof value === "object" && value !== null && !Buffer.isBuffer(value))
    return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, safe(member)]));
  return value;
}

function respond(request: Request, value: unknown): Answer {
  if (takesMsgpack(request)) return { body: packr.pack(value), type: MSGPACK_TYPE };
  return { body: writeExact(value, /(^|&)u64=string(&|$)/.test(request.search)), type: JSON_TYPE };
}
