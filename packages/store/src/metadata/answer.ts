// The metadata server's answers: the contract's GET, PUT and DELETE, a listing, health and metrics.
import { STATUS_CODES } from "node:http";
import { asFailure, Failure, fail, failureBody } from "@svc/contract/failures.ts";
import { LEASE_HEADER, MAX_KEY_BYTES } from "@svc/contract/metadata.ts";
import { PAGE_TYPE } from "@svc/kit/home-page.ts";
import type { Records } from "./records.ts";

export type Request = { readonly method: string; readonly target: string; readonly lease: string | undefined; readonly body: Buffer };

export type Answer = {
  readonly status: number;
  readonly type: string;
  readonly body: Buffer;
  readonly allow?: string;
  /** Replaces a body of known length; a piece is undefined while there is nothing to send yet. */
  readonly pieces?: Iterator<Buffer | undefined>;
};

export type Answering = { readonly path: string; readonly maxLeaseMs: number; readonly records: Records; readonly page: Buffer; metrics(): Promise<Answer> };

const JSON_TYPE = "application/json";
const TEXT_TYPE = "text/plain; charset=utf-8";
const NOTHING = Buffer.alloc(0);
const OK = Buffer.from("OK");
const UPDATED = Buffer.from('{"status":"metadata updated"}\n');
const DELETED = Buffer.from('{"status":"metadata deleted"}\n');
/** The number of records that a listing examines before other work may run. */
const LIST_STEP = 500;
const LIST_BYTES = 16 * 1024;
/** Bounds concurrent listings, each of which may keep one value in its printed form. */
const MAX_LISTINGS = 8;

/** Never fails. A change is answered once it is stored. */
export function answer(request: Request, answering: Answering): Answer | Promise<Answer> {
  try {
    const answered = route(request, answering);
    return answered instanceof Promise ? answered.catch(refusal) : answered;
  } catch (error) {
    return refusal(error);
  }
}

function route(request: Request, answering: Answering): Answer | Promise<Answer> {
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
      if (prefix !== undefined && member(query, "key") === undefined) return { status: 200, type: JSON_TYPE, body: NOTHING, pieces: listing(records, prefix) };
      const key = keyOf(query);
      const value = records.get(key);
      if (value !== undefined) return { status: 200, type: JSON_TYPE, body: value };
      if (!records.isUnkept(key)) return notFound(key);
      return records.getKept(key).then((kept) => ({ status: 200, type: JSON_TYPE, body: kept ?? notFound(key) }));
    }
    case "PUT":
      // The body is stored without a copy, since the connection allocated its memory for this value alone.
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
  return { ...refusal(new Failure("METHOD_NOT_ALLOWED", `${path} takes ${allow}`)), allow };
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

function leaseOf(request: Request, maxLeaseMs: number): number | undefined {
  const text = request.lease;
  if (text === undefined) return undefined;
  const leaseMs = Number(text);
  if (!/^\d+$/.test(text) || leaseMs < 1 || leaseMs > maxLeaseMs)
    fail("INVALID_REQUEST", `${LEASE_HEADER}: expected 1 to ${maxLeaseMs} milliseconds, got ${text}`);
  return leaseMs;
}

let listings = 0;

/** Lists keys and values as a JSON object in pieces, since the map may be large and clients slow. @throws CAPACITY_EXHAUSTED */
function listing(records: Records, prefix: string): Iterator<Buffer | undefined> {
  if (listings >= MAX_LISTINGS) fail("CAPACITY_EXHAUSTED", `${MAX_LISTINGS} listings are in progress, the maximum; try again in a moment`);
  listings++;
  return (function* pieces() {
    try {
      let text = "{";
      let separator = "";
      let looked = 0;
      for (const found of records.withPrefix(prefix)) {
        if (found !== undefined) {
          text += `${separator}${JSON.stringify(found[0])}:${JSON.stringify(found[1].toString())}`;
          separator = ",";
        }
        if (++looked % LIST_STEP !== 0 && text.length < LIST_BYTES) continue;
        yield text === "" ? undefined : Buffer.from(text);
        text = "";
      }
      yield Buffer.from(`${text}}`);
    } finally {
      listings--;
    }
  })();
}

export function refusal(error: unknown): Answer {
  const failure = asFailure(error);
  return { status: failure.row.http, type: JSON_TYPE, body: Buffer.from(`${JSON.stringify(failureBody(failure))}\n`) };
}

/** Without a `length` the body ends with the connection. */
export function printHead(answer: Answer, keepAlive: boolean, length: number | undefined): string {
  const lines = [`HTTP/1.1 ${answer.status} ${STATUS_CODES[answer.status] ?? "Unknown"}`, `Content-Type: ${answer.type}`];
  if (length !== undefined) lines.push(`Content-Length: ${length}`);
  if (answer.allow !== undefined) lines.push(`Allow: ${answer.allow}`);
  if (!keepAlive) lines.push("Connection: close");
  return `${lines.join("\r\n")}\r\n\r\n`;
}
