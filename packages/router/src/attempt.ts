// One request on one engine: its answer goes to the client as it comes, and nothing goes there before its first byte.
import type { ResponseHead } from "@svc/kit/proxy/response-head.ts";
import type { HeldBody } from "./bodies.ts";
import type { Bounded, Bounds } from "./bounds.ts";
import type { ClientRequest } from "./client/request.ts";
import { DEADLINE_HEADER, type Deadline, leftOf } from "./deadline.ts";
import type { Ending } from "./ending.ts";
import type { EngineConnection, Exchange } from "./engine-connection.ts";
import type { Placed } from "./placed.ts";
import { errorBody, Refusal, singleBytes } from "./refusals.ts";
import { AnswerScan } from "./usage.ts";

export type Sent = {
  readonly request: ClientRequest;
  readonly body: HeldBody;
  readonly deadline: Deadline | undefined;
  /** Header lines besides those of the client. */
  readonly lines: string;
};
export type AttemptLimits = { readonly connectMs: number; readonly firstByteMs: number; readonly idleMs: number };
export type AttemptOptions = {
  readonly sent: Sent;
  readonly placed: Placed;
  readonly limits: AttemptLimits;
  readonly bounds: Bounds;
  /** True if another engine could take the request after this one failed before its first answer byte. */
  readonly mayRetry: () => boolean;
  /** The client's end, or with a reason its deadline. */
  readonly ending: Ending;
  readonly onFirstByte: () => void;
};
export type Outcome =
  | { readonly end: "answered"; readonly status: number; readonly scan: AnswerScan }
  | { readonly end: "gone" }
  /** The client received a part of the answer; its connection was closed, so that it cannot take the part for the whole. */
  | { readonly end: "cut"; readonly status: number; readonly why: string }
  /** The client has received no byte yet, so another engine may answer. */
  | { readonly end: "failed"; readonly refusal: Refusal };

/** Lines of an answer that belong to one connection, and those of this router. */
const ownHeaders: ReadonlySet<string> = new Set([
  ...["connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"],
  ...["x-svc-instance", "x-svc-prefill-instance", "x-svc-expected-cached-tokens"],
]);
/** The trailer that tells the client how many tokens the engine had cached. */
const CACHED = "x-svc-cached-tokens";
/** With these statuses an engine says that it has not begun the request or cannot finish it, so another engine may answer. */
const ELSEWHERE = [502, 503, 504];
const FULL = 429;
const NO_CONTENT = 204;
const NOT_MODIFIED = 304;
/** Errors by which nothing listens at the engine's address. */
const CERTAIN = ["ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND"];

/** Repeated once where an idle connection had been closed by the engine just when it was used again. */
export function attempt(options: AttemptOptions): Promise<Outcome> {
  return new Promise((resolve) => new Attempt(options, resolve).begin(false));
}

class Attempt implements Exchange, Bounded {
  readonly method: string;
  boundAtMs = Number.POSITIVE_INFINITY;
  readonly #options: AttemptOptions;
  readonly #resolve: (outcome: Outcome) => void;
  readonly #scan = new AnswerScan();
  #connection: EngineConnection | undefined;
  #status = 0;
  #lines = "";
  #hasLength = false;
  #isEvents = false;
  #hasHead = false;
  #hasBegun = false;
  /** The router writes the chunks itself, so that a read of the engine's answer becomes one write. */
  #isChunked = false;
  #isOver = false;
  /** The bound that is in force; it decides what its end means. */
  #waitsFor: "connection" | "answer" | "more" | "client" = "connection";
  readonly #leave = () => this.#left();
  readonly #resume = () => this.#goOn();

  constructor(options: AttemptOptions, resolve: (outcome: Outcome) => void) {
    this.#options = options;
    this.#resolve = resolve;
    this.method = options.sent.request.method;
  }

  begin(fresh: boolean) {
    const { sent, placed, ending, bounds } = this.#options;
    if (ending.isOver) return this.#settle(ending.reason === undefined ? { end: "gone" } : { end: "failed", refusal: ending.reason });
    if (!fresh) {
      ending.on(this.#leave);
      bounds.add(this);
    }
    const connection = placed.engine.connections.send(this, { head: headFor(sent, placed), body: sent.body.bytes }, fresh);
    this.#connection = connection;
    this.#bound(connection.isDialling ? "connection" : "answer");
  }

  onConnect(): void {
    this.#bound("answer");
  }

  onHead(answer: ResponseHead) {
    const { placed, mayRetry } = this.#options;
    const { name } = placed.engine;
    const { status } = answer;
    this.#status = status;
    this.#hasHead = true;
    if (ELSEWHERE.includes(status) && mayRetry()) return this.#fail(new Refusal("engine_failed", `the engine ${name} answered ${status}`), false);
    // A full engine works, so its circuit stays closed; where no other one can take the request, the client gets the engine's own answer.
    if (status === FULL && mayRetry()) {
      this.#end(new Refusal("engine_failed", `the engine ${name} is full (${FULL})`));
      this.#connection?.abort();
      return;
    }
    this.#readLines(answer);
  }

  onBody(text: string) {
    const { request } = this.#options.sent;
    if (!this.#hasBegun) this.#begin();
    if (this.#isOver) return;
    this.#scan.take(text);
    if (request.write(this.#isChunked ? chunkOf(text) : text)) return this.#bound("more");
    // The engine waits while the client reads slowly.
    this.#connection?.pause();
    this.#bound("client");
    request.onDrain = this.#resume;
  }

  onEnd(text: string) {
    if (this.#isOver) return;
    if (!this.#hasBegun) this.#begin();
    const scan = this.#scan;
    if (text !== "") scan.take(text);
    const { request } = this.#options.sent;
    if (!this.#isChunked) request.end(text);
    else {
      const { cachedTokens } = scan.usage();
      request.end(`${text === "" ? "" : chunkOf(text)}0\r\n${cachedTokens === undefined ? "" : `${CACHED}: ${cachedTokens}\r\n`}\r\n`);
    }
    this.#settle({ end: "answered", status: this.#status, scan });
  }

  onFailure(error: NodeJS.ErrnoException, isStale: boolean) {
    if (this.#isOver) return;
    if (isStale) return this.begin(true);
    const what = this.#hasHead ? "broke its answer off" : "gave no answer";
    this.#fail(new Refusal("engine_failed", `the engine ${this.#options.placed.engine.name} ${what}: ${error.message}`), CERTAIN.includes(error.code ?? ""));
  }

  onBound() {
    const { placed, limits } = this.#options;
    const { name } = placed.engine;
    const { connectMs, firstByteMs, idleMs } = limits;
    if (this.#waitsFor === "client") {
      // That is the client's fault, so the engine is not blamed.
      this.#end(
        new Refusal("client_gone", `the client took nothing from the connection for ${firstByteMs / 1000} s (router.first_byte_seconds bounds clients, too)`),
      );
      this.#connection?.abort();
    } else if (this.#waitsFor === "connection")
      this.#fail(new Refusal("engine_failed", `the engine ${name} took no connection within ${connectMs} ms (router.connect_timeout_ms)`), false);
    else if (this.#waitsFor === "answer")
      this.#fail(new Refusal("engine_timeout", `the engine ${name} sent no answer within ${firstByteMs / 1000} s (router.first_byte_seconds)`), false);
    else this.#fail(new Refusal("engine_timeout", `the engine ${name} sent nothing for ${idleMs / 1000} s (router.idle_seconds)`), false);
  }

  #bound(what: "connection" | "answer" | "more" | "client"): void {
    const { limits, bounds } = this.#options;
    this.#waitsFor = what;
    if (what === "more") this.boundAtMs = bounds.nowMs + limits.idleMs;
    else this.boundAtMs = performance.now() + (what === "connection" ? limits.connectMs : limits.firstByteMs);
  }

  #goOn(): void {
    if (this.#isOver) return;
    this.#bound("more");
    this.#connection?.resume();
  }

  #settle(outcome: Outcome): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#options.bounds.delete(this);
    this.#options.ending.off(this.#leave);
    this.#resolve(outcome);
  }

  #left(): void {
    const { reason } = this.#options.ending;
    if (reason !== undefined) this.#end(reason);
    this.#settle({ end: "gone" });
    this.#connection?.abort();
  }

  #end(refusal: Refusal) {
    if (this.#isOver) return;
    if (!this.#hasBegun) return this.#settle({ end: "failed", refusal });
    const { request } = this.#options.sent;
    // Only events of a stream whose end the chunks show can have one more behind them.
    cut(request, this.#isEvents && !this.#hasLength && this.#scan.endsEvent, this.#isChunked, refusal);
    this.#settle({ end: "cut", status: this.#status, why: refusal.message });
  }

  #fail(refusal: Refusal, certain: boolean): void {
    if (this.#isOver) return;
    this.#options.placed.engine.failed(refusal.message, certain);
    this.#end(refusal);
    this.#connection?.abort();
  }

  /** Half an answer is refused as long as the client has none of it: its head waits for the first byte of its body. */
  #begin() {
    const { sent, placed, onFirstByte } = this.#options;
    const { request } = sent;
    const status = this.#status;
    this.#hasBegun = true;
    const hasBody = !request.isHead && status !== NO_CONTENT && status !== NOT_MODIFIED;
    // Only an answer of unknown length can have more behind its body; for others the client reads its usage. HTTP/1.0 has no chunks.
    this.#isChunked = hasBody && !this.#hasLength && !request.isHttp10;
    request.begin(status, this.#isChunked ? `${this.#lines}transfer-encoding: chunked\r\ntrailer: ${CACHED}\r\n` : this.#lines);
    this.#lines = "";
    if (status < 500) placed.engine.succeeded();
    onFirstByte();
  }

  #readLines(answer: ResponseHead): void {
    const { engine, expectedCached, prefill } = this.#options.placed;
    const { text, count, lineStart, nameEnd, valueStart } = answer;
    let lines = "";
    for (let line = 0; line < count; line++) {
      const name = text.slice(lineStart[line], nameEnd[line]).toLowerCase();
      if (name === "content-length") {
        this.#hasLength = true;
        if (this.#status === NO_CONTENT) continue;
      } else if (name === "content-type") this.#isEvents = text.startsWith("text/event-stream", valueStart[line]);
      else if (ownHeaders.has(name)) continue;
      lines += text.slice(lineStart[line], lineStart[line + 1]);
    }
    lines += `x-svc-instance: ${engine.name}\r\n`;
    if (prefill !== undefined) lines += `x-svc-prefill-instance: ${prefill.engine.name}\r\n`;
    this.#lines = expectedCached === undefined ? lines : `${lines}x-svc-expected-cached-tokens: ${expectedCached}\r\n`;
  }
}

const chunkOf = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`;

function headFor({ request, body, deadline, lines }: Sent, { engine }: Placed): string {
  const { method, target, headers } = request;
  const key = engine.record.api_key;
  let head = `${method} ${target} HTTP/1.1\r\nhost: ${engine.authority}\r\n${request.lines}${lines}`;
  if (key !== undefined) head += `authorization: Bearer ${key}\r\n`;
  else if (headers["authorization"] !== undefined) head += `authorization: ${headers["authorization"]}\r\n`;
  if (deadline !== undefined) head += `${DEADLINE_HEADER}: ${leftOf(deadline)}\r\n`;
  if (body.bytes.length > 0 || (method !== "GET" && method !== "HEAD")) head += `content-length: ${body.bytes.length}\r\n`;
  return `${head}\r\n`;
}

/** A stream that ends between two events gets one more that says why; anything else ends without its last chunk. */
function cut(request: ClientRequest, takesEvent: boolean, isChunked: boolean, refusal: Refusal) {
  if (!takesEvent) return request.break();
  const named = request.path === "/v1/messages" || request.path === "/v1/responses" ? "event: error\n" : "";
  const text = singleBytes(`${named}data: ${JSON.stringify(errorBody(refusal.code, refusal.message))}\n\n`);
  request.end(isChunked ? `${chunkOf(text)}0\r\n\r\n` : text);
}
