// The metadata server's answers: the contract's GET, PUT and DELETE, a listing, health and metrics.
import { Readable } from "node:stream";
import { setImmediate as breathe } from "node:timers/promises";
import { asFailure, Failure, fail, failureBody } from "@svc/contract/failures.ts";
import { LEASE_HEADER, MAX_KEY_BYTES } from "@svc/contract/metadata.ts";
import { PAGE_TYPE } from "@svc/kit/home-page.ts";
import type { Answer, Request } from "@svc/kit/http/exchange.ts";
import type { Records } from "./records.ts";

export type Answering = { readonly path: string; readonly maxLeaseMs: number; readonly records: Records; readonly page: Buffer; metrics(): Promise<Answer> };

const JSON_TYPE = "application/json";
const TEXT_TYPE = "text/plain; charset=utf-8";
const OK = Buffer.from("OK");
const UPDATED = Buffer.from('{"status":"metadata updated"}\n');
const DELETED = Buffer.from('{"status":"metadata deleted"}\n');
/** The number of records that a listing examines before other work may run. */
const LIST_STEP = 500;
const LIST_BYTES = 16 * 1024;
/** Bounds concurrent listings, each of which may keep one value in its printed form. */
const MAX_LISTINGS = 8;

/** The headers that this server reads. */
export const requestHeaders = [LEASE_HEADER];

/** A change is answered once it is stored. */
export function answer(request: Request, answering: Answering): Answer | Promise<Answer> {
  const query = request.target.indexOf("?");
  const path = query < 0 ? request.target : request.target.slice(0, query);
  if (path === answering.path) return answerKey(request, query < 0 ? "" : request.target.slice(query + 1), answering);
  if (path !== "/health" && path !== "/metrics" && path !== "/")
    return fail("ROUTE_NOT_FOUND", `${request.method} ${path}: there is no such route; ${answering.path}?key=KEY, /health and /metrics exist`);
  if (request.method !== "GET" && request.method !== "HEAD") return notAllowed(path, "GET, HEAD");
  if (path === "/") return { status: 200, type: PAGE_TYPE, body: answering.page };
  return path === "/health" ? { status: 200, type: TEXT_TYPE, body: OK } : answering.metrics();
}

function answerKey(request: Request, query: string, { records, maxLeaseMs, path }: Answering): Answer | Promise<Answer> {
  switch (request.method) {
    case "GET":
    case "HEAD": {
      const prefix = member(query, "prefix");
      if (prefix !== undefined && member(query, "key") === undefined)
        return { status: 200, type: JSON_TYPE, body: "", stream: { source: listing(records, prefix) } };
      const key = keyOf(query);
      const value = records.get(key);
      if (value !== undefined) return { status: 200, type: JSON_TYPE, body: value };
      if (!records.isUnkept(key)) return notFound(key);
      return records.getKept(key).then((kept) => ({ status: 200, type: JSON_TYPE, body: kept ?? notFound(key) }));
    }
    case "PUT":
      // The body is stored without a copy, since its memory was allocated for this value alone.
      return records.put(keyOf(query), request.body, leaseOf(request, maxLeaseMs)).then(() => ({ status: 200, type: JSON_TYPE, body: UPDATED }));
    case "DELETE": {
      const key = keyOf(query);
      return records.delete(key).then((existed) => {
        if (!existed) notFound(key);
        return { status: 200, type: JSON_TYPE, body: DELETED };
      });
    }
    default:
      return notAllowed(path, "GET, HEAD, PUT, DELETE");
  }
}

function notAllowed(path: string, allow: string): Answer {
  return { ...refusal(new Failure("METHOD_NOT_ALLOWED", `${path} takes ${allow}`)), headers: { Allow: allow } };
}

function notFound(key: string): never {
  return fail("METADATA_KEY_NOT_FOUND", `metadata not found: there is no key ${key}`);
}

function keyOf(query: string): string {
  const key = member(query, "key") ?? fail("INVALID_REQUEST", "the query has no key; expected ?key=KEY, percent-encoded");
  if (key === "") fail("INVALID_REQUEST", "the key is empty");
  if (Buffer.byteLength(key) > MAX_KEY_BYTES) fail("INVALID_REQUEST", `the key is longer than ${MAX_KEY_BYTES} bytes`);
  return key;
}

/** Returns the first percent-decoded parameter of that name. A plus sign is literal, since keys may contain it and clients escape spaces as %20. */
function member(query: string, name: string): string | undefined {
  for (const part of query.split("&")) {
    const equals = part.indexOf("=");
    if ((equals < 0 ? part : part.slice(0, equals)) !== name) continue;
    try {
      return decodeURIComponent(equals < 0 ? "" : part.slice(equals + 1));
    } catch (error) {
      return fail("INVALID_REQUEST", `${name} is not percent-encoded UTF-8`, { cause: error });
    }
  }
  return undefined;
}

function leaseOf({ headers: [text] }: Request, maxLeaseMs: number): number | undefined {
  if (text === undefined) return undefined;
  const leaseMs = Number(text);
  if (!/^\d+$/.test(text) || leaseMs < 1 || leaseMs > maxLeaseMs)
    fail("INVALID_REQUEST", `${LEASE_HEADER}: expected 1 to ${maxLeaseMs} milliseconds, got ${text}`);
  return leaseMs;
}

let listings = 0;

/** Lists keys and values as a JSON object in pieces, since the map may be large and clients slow. @throws CAPACITY_EXHAUSTED */
function listing(records: Records, prefix: string): Readable {
  if (listings >= MAX_LISTINGS) fail("CAPACITY_EXHAUSTED", `${MAX_LISTINGS} listings are in progress, the maximum; try again in a moment`);
  listings++;
  return Readable.from(piecesOf(records, prefix), { objectMode: false }).once("close", () => listings--);
}

async function* piecesOf(records: Records, prefix: string): AsyncIterable<Buffer> {
  let text = "{";
  let separator = "";
  let looked = 0;
  for (const found of records.withPrefix(prefix)) {
    if (found !== undefined) {
      text += `${separator}${JSON.stringify(found[0])}:${JSON.stringify(found[1].toString())}`;
      separator = ",";
    }
    if (++looked % LIST_STEP !== 0 && text.length < LIST_BYTES) continue;
    if (text !== "") yield Buffer.from(text);
    text = "";
    await breathe();
  }
  yield Buffer.from(`${text}}`);
}

export function refusal(error: unknown): Answer {
  const failure = asFailure(error);
  return { status: failure.row.http, type: JSON_TYPE, body: Buffer.from(`${JSON.stringify(failureBody(failure))}\n`) };
}
