// What the metadata server says to each request: the contract's GET, PUT and DELETE, a listing, health and metrics.
import { asFailure, Failure, fail, failureBody } from "@svc/contract/failures.ts";
import { LEASE_HEADER, MAX_KEY_BYTES } from "@svc/contract/metadata.ts";
import type { Records } from "./records.ts";
import type { Request } from "./request.ts";

export type Answer = { readonly status: number; readonly type: string; readonly body: Buffer; readonly allow?: string };

export type Answering = { readonly path: string; readonly maxLeaseMs: number; readonly records: Records; metrics(): Promise<Answer> };

const JSON_TYPE = "application/json";
const TEXT_TYPE = "text/plain; charset=utf-8";
const UPDATED = Buffer.from('{"status":"metadata updated"}\n');
const DELETED = Buffer.from('{"status":"metadata deleted"}\n');

/** Gives the answer now, or once what it acknowledges is safe on disk. */
export function answer(request: Request, answering: Answering, done: (answer: Answer) => void): void {
  try {
    const query = request.target.indexOf("?");
    const path = query < 0 ? request.target : request.target.slice(0, query);
    if (path === answering.path) {
      answerKey(request, query < 0 ? "" : request.target.slice(query + 1), answering, done);
      return;
    }
    if (path === "/health" || path === "/metrics") {
      if (request.method !== "GET" && request.method !== "HEAD")
        done({ ...refusal(new Failure("METHOD_NOT_ALLOWED", `${path} takes GET`)), allow: "GET, HEAD" });
      if (path === "/health") done({ status: 200, type: TEXT_TYPE, body: Buffer.from("OK") });
      else answering.metrics().then(done, (error) => done(refusal(error)));
      return;
    }
    fail("ROUTE_NOT_FOUND", `${request.method} ${path}: there is no such route; ${answering.path}?key=KEY, /health and /metrics exist`);
  } catch (error) {
    done(refusal(error));
  }
}

function answerKey(request: Request, query: string, { records, maxLeaseMs, path }: Answering, done: (answer: Answer) => void): void {
  const saved = (body: Buffer) => records.whenSafe((error) => done(error === undefined ? { status: 200, type: JSON_TYPE, body } : refusal(diskFailure(error))));
  switch (request.method) {
    case "GET":
    case "HEAD": {
      const prefix = member(query, "prefix");
      if (prefix !== undefined && member(query, "key") === undefined) {
        done(listing(records, prefix));
        return;
      }
      const key = keyOf(query);
      const value = records.get(key) ?? fail("METADATA_KEY_NOT_FOUND", `metadata not found: there is no key ${key}`);
      done({ status: 200, type: JSON_TYPE, body: value });
      return;
    }
    case "PUT":
      // A copy: the bytes read from the socket lie in a larger buffer that would stay with them.
      records.put(keyOf(query), Buffer.from(request.body), leaseOf(request, maxLeaseMs));
      saved(UPDATED);
      return;
    case "DELETE": {
      const key = keyOf(query);
      if (!records.delete(key)) fail("METADATA_KEY_NOT_FOUND", `metadata not found: there is no key ${key}`);
      saved(DELETED);
      return;
    }
    default:
      done({ ...refusal(new Failure("METHOD_NOT_ALLOWED", `${path} takes GET, PUT and DELETE`)), allow: "GET, HEAD, PUT, DELETE" });
  }
}

function keyOf(query: string): string {
  const key = member(query, "key") ?? fail("INVALID_REQUEST", "the query has no key; ask for ?key=KEY, percent-encoded");
  if (key === "") fail("INVALID_REQUEST", "the key is empty");
  if (Buffer.byteLength(key) > MAX_KEY_BYTES) fail("INVALID_REQUEST", `the key is longer than ${MAX_KEY_BYTES} bytes`);
  return key;
}

/** The first member of that name, percent-decoded; a plus sign is a plus sign, since keys may hold it and clients escape spaces as %20. */
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
  const text = request.headers.get(LEASE_HEADER);
  if (text === undefined) return undefined;
  const leaseMs = Number(text);
  if (!/^\d+$/.test(text) || leaseMs < 1 || leaseMs > maxLeaseMs)
    fail("INVALID_REQUEST", `${LEASE_HEADER}: asked for 1 to ${maxLeaseMs} milliseconds, found ${text}`);
  return leaseMs;
}

function listing(records: Records, prefix: string): Answer {
  const found: Record<string, string> = Object.create(null);
  for (const [key, value] of records.withPrefix(prefix)) found[key] = value.toString();
  return { status: 200, type: JSON_TYPE, body: Buffer.from(JSON.stringify(found)) };
}

function diskFailure(error: Error): Failure {
  return /full/i.test(error.message) ? new Failure("DISK_FULL", "the disk that holds the records is full", { cause: error }) : asFailure(error);
}

export function refusal(error: unknown): Answer {
  const failure = asFailure(error);
  return { status: failure.row.http, type: JSON_TYPE, body: Buffer.from(`${JSON.stringify(failureBody(failure))}\n`) };
}
