// One request on one engine: its answer goes to the client as it comes, and nothing goes there before its first byte.
import type { IncomingHttpHeaders, ServerResponse } from "node:http";
import type { ResponseHead } from "@svc/kit/proxy/response-head.ts";
import type { HeldBody } from "./bodies.ts";
import { DEADLINE_HEADER, type Deadline, leftOf, refusalOf } from "./deadline.ts";
import type { EngineConnection, Exchange } from "./engine-connection.ts";
import type { Placed } from "./placement.ts";
import { errorBody, Refusal } from "./refusals.ts";
import { AnswerScan } from "./usage.ts";

export type Sent = {
  readonly method: string;
  readonly target: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: HeldBody;
  readonly path: string;
  readonly deadline: Deadline | undefined;
};
export type AttemptLimits = { readonly connectMs: number; readonly firstByteMs: number; readonly idleMs: number };
export type AttemptOptions = {
  readonly sent: Sent;
  readonly placed: Placed;
  readonly response: ServerResponse;
  readonly limits: AttemptLimits;
  /** True if another engine could take the request after this one failed before its first answer byte. */
  readonly mayRetry: () => boolean;
  /** Aborted when the client leaves, or with a Refusal once its deadline has passed. */
  readonly signal: AbortSignal;
  readonly onFirstByte: () => void;
};
export type Outcome =
  | { readonly end: "answered"; readonly status: number; readonly scan: AnswerScan }
  | { readonly end: "gone" }
  /** The client received a part of the answer; its connection was closed, so that it cannot take the part for the whole. */
  | { readonly end: "cut"; readonly status: number; readonly why: string }
  /** The client has received no byte yet, so another engine may answer. */
  | { readonly end: "failed"; readonly refusal: Refusal };

/** Headers that belong to one connection, and those of this router. */
const ownHeaders: ReadonlySet<string> = new Set([
  ...["connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"],
  ...["host", "expect", "content-length", "x-svc-engine", "x-svc-explain"],
]);
/** The trailer that tells the client how many tokens the engine had cached. */
const CACHED = "x-svc-cached-tokens";
/** With these statuses an engine says that it has not begun the request or cannot finish it, so another engine may answer. */
const ELSEWHERE = [502, 503, 504];
const FULL = 429;

/** Repeated once where an idle connection had been closed by the engine just when it was used again. */
export async function attempt(options: AttemptOptions): Promise<Outcome> {
  const first = await once(options, false);
  return first === "stale" ? ((await once(options, true)) as Outcome) : first;
}

/** @throws Refusal for a path that no request line can have */
function once({ sent, placed, response, limits, mayRetry, signal, onFirstByte }: AttemptOptions, fresh: boolean): Promise<Outcome | "stale"> {
  const { engine } = placed;
  if (!printable.test(sent.target)) throw new Refusal("invalid_request", "expected a path without white space and control characters");
  return new Promise((resolve) => {
    const scan = new AnswerScan();
    let status = 0;
    let headers: string[] = [];
    let hasLength = false;
    let hasHead = false;
    let began = false;
    let isOpenStream = false;
    /** The router writes the chunks itself, so that a read of the engine's answer becomes one write. */
    let isChunked = false;
    let over = false;
    let timer: NodeJS.Timeout | undefined;
    let isIdleBound = false;
    const settle = (outcome: Outcome | "stale") => {
      if (over) return;
      over = true;
      clearTimeout(timer);
      signal.removeEventListener("abort", leave);
      resolve(outcome);
    };
    const leave = () => {
      const late = refusalOf(signal);
      if (late !== undefined && !over) end(late);
      settle({ end: "gone" });
      connection?.abort();
    };
    const bound = (ms: number, why: string) => {
      clearTimeout(timer);
      timer = setTimeout(() => fail(new Refusal("engine_timeout", `the engine ${engine.name} ${why}`), false), ms);
    };
    const boundIdle = () => {
      bound(limits.idleMs, `sent nothing for ${limits.idleMs / 1000} s (router.idle_seconds)`);
      isIdleBound = true;
    };
    const boundFirstByte = () => bound(limits.firstByteMs, `sent no answer within ${limits.firstByteMs / 1000} s (router.first_byte_seconds)`);
    const end = (refusal: Refusal) => {
      if (!began) return settle({ end: "failed", refusal });
      cut(response, isOpenStream && scan.endsEvent, isChunked, sent.path, refusal);
      settle({ end: "cut", status, why: refusal.message });
    };
    const fail = (refusal: Refusal, certain: boolean) => {
      if (over) return;
      engine.failed(refusal.message, certain);
      end(refusal);
      connection?.abort();
    };
    // Half an answer is refused as long as the client has none of it: its head waits for the first byte of its body.
    const begin = () => {
      if (began || over) return;
      began = true;
      isChunked = !hasLength && takesTrailers(response, sent.method, status);
      // Only an answer of unknown length can have more behind its body; for others the client reads its usage.
      if (isChunked) headers.push("transfer-encoding", "chunked", "trailer", CACHED);
      try {
        response.writeHead(status, headers);
      } catch (error) {
        // A status or a header that HTTP does not have.
        began = false;
        fail(new Refusal("engine_failed", `the engine ${engine.name} answered with a head that cannot be passed on: ${(error as Error).message}`), false);
        return;
      }
      if (isChunked) response.chunkedEncoding = false;
      if (status < 500) engine.succeeded();
      onFirstByte();
    };
    if (signal.aborted) {
      const late = refusalOf(signal);
      return settle(late === undefined ? { end: "gone" } : { end: "failed", refusal: late });
    }
    let connection: EngineConnection | undefined;
    const exchange: Exchange = {
      method: sent.method,
      onConnect: boundFirstByte,
      onHead(answer) {
        ({ status } = answer);
        hasHead = true;
        if (ELSEWHERE.includes(status) && mayRetry()) {
          fail(new Refusal("engine_failed", `the engine ${engine.name} answered ${status}`), false);
          return;
        }
        // A full engine works, so its circuit stays closed; where no other one can take the request, the client gets the engine's own answer.
        if (status === FULL && mayRetry()) {
          end(new Refusal("engine_failed", `the engine ${engine.name} is full (${FULL})`));
          connection?.abort();
          return;
        }
        ({ headers, hasLength, isOpenStream } = headersOf(answer, placed));
      },
      onBody(text) {
        begin();
        if (over) return;
        scan.take(text);
        // A stream of many small chunks would spend much of its time on new timers.
        if (isIdleBound) timer?.refresh();
        else boundIdle();
        if (response.write(isChunked ? chunkOf(text) : text, "latin1")) return;
        // The engine waits while the client reads slowly.
        connection?.pause();
        clearTimeout(timer);
        isIdleBound = false;
        // That is the client's fault, so the engine is not blamed.
        timer = setTimeout(() => {
          end(new Refusal("client_gone", `the client read nothing for ${limits.firstByteMs / 1000} s (router.first_byte_seconds)`));
          connection?.abort();
        }, limits.firstByteMs);
        response.once("drain", () => {
          if (over) return;
          boundIdle();
          connection?.resume();
        });
      },
      onEnd(text) {
        if (over) return;
        begin();
        if (over) return;
        if (text !== "") scan.take(text);
        const { cachedTokens } = scan.usage();
        if (isChunked)
          response.end(`${text === "" ? "" : chunkOf(text)}0\r\n${cachedTokens === undefined ? "" : `${CACHED}: ${cachedTokens}\r\n`}\r\n`, "latin1");
        else response.end(text, "latin1");
        settle({ end: "answered", status, scan });
      },
      onFailure(error, isStale) {
        if (over) return;
        if (isStale) return settle("stale");
        const certain = ["ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND"].includes(error.code ?? "");
        const what = hasHead ? "broke its answer off" : "gave no answer";
        fail(new Refusal("engine_failed", `the engine ${engine.name} ${what}: ${error.message}`), certain);
      },
    };
    signal.addEventListener("abort", leave, { once: true });
    connection = engine.connections.send(exchange, { head: headFor(sent, placed), body: sent.body.bytes }, fresh);
    if (!connection.isDialling) boundFirstByte();
    else
      timer = setTimeout(
        () =>
          fail(new Refusal("engine_failed", `the engine ${engine.name} took no connection within ${limits.connectMs} ms (router.connect_timeout_ms)`), false),
        limits.connectMs,
      );
  });
}

const chunkOf = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`;

/** Trailers need chunks, which a client of HTTP/1.0 and an answer without a body do not have. */
function takesTrailers(response: ServerResponse, method: string, status: number): boolean {
  return response.useChunkedEncodingByDefault && method !== "HEAD" && status !== 204 && status !== 304;
}

function headFor({ target, headers, body, method, deadline }: Sent, { engine }: Placed): string {
  const named = headers.connection === undefined ? undefined : new Set(headers.connection.toLowerCase().split(/[ ,]+/));
  const key = engine.record.api_key;
  let lines = `${method} ${target} HTTP/1.1\r\nhost: ${engine.url.slice("http://".length)}\r\n`;
  for (const name in headers) {
    if (ownHeaders.has(name) || named?.has(name) === true || name === DEADLINE_HEADER || (key !== undefined && name === "authorization")) continue;
    const value = headers[name];
    if (typeof value === "string") lines += `${name}: ${value}\r\n`;
    else for (const one of value ?? []) lines += `${name}: ${one}\r\n`;
  }
  if (deadline !== undefined) lines += `${DEADLINE_HEADER}: ${leftOf(deadline)}\r\n`;
  if (key !== undefined) lines += `authorization: Bearer ${key}\r\n`;
  if (body.bytes.length > 0 || (method !== "GET" && method !== "HEAD")) lines += `content-length: ${body.bytes.length}\r\n`;
  return `${lines}\r\n`;
}

/** Names and values in turn; `isOpenStream`: events whose end only the chunks show. */
function headersOf(answer: ResponseHead, { engine, expectedCached, prefill }: Placed): { headers: string[]; hasLength: boolean; isOpenStream: boolean } {
  const { text, count, lineStart, nameEnd, valueStart, valueEnd } = answer;
  const headers: string[] = [];
  let hasLength = false;
  let isEvents = false;
  for (let line = 0; line < count; line++) {
    const name = text.slice(lineStart[line], nameEnd[line]).toLowerCase();
    if (name === "content-length") hasLength = true;
    else if (ownHeaders.has(name)) continue;
    const value = text.slice(valueStart[line], valueEnd[line]);
    if (name === "content-type") isEvents = value.startsWith("text/event-stream");
    headers.push(name, value);
  }
  headers.push("x-svc-instance", engine.name);
  if (prefill !== undefined) headers.push("x-svc-prefill-instance", prefill.engine.name);
  if (expectedCached !== undefined) headers.push("x-svc-expected-cached-tokens", String(expectedCached));
  return { headers, hasLength, isOpenStream: isEvents && !hasLength };
}

/** A stream that ends between two events gets one more that says why; anything else ends without its last chunk. */
function cut(response: ServerResponse, takesEvent: boolean, isChunked: boolean, path: string, refusal: Refusal): void {
  if (!takesEvent) {
    response.destroy();
    return;
  }
  const named = path === "/v1/messages" || path === "/v1/responses" ? "event: error\n" : "";
  // Chunks count bytes, so the text has one character per byte.
  const text = Buffer.from(`${named}data: ${JSON.stringify(errorBody(refusal.code, refusal.message))}\n\n`).toString("latin1");
  response.end(isChunked ? `${chunkOf(text)}0\r\n\r\n` : text, "latin1");
}

const printable = /^[\x21-\x7e\x80-\xff]+$/;
