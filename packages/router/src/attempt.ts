// One request on one engine: its answer goes to the client as it comes, and nothing goes there before its first byte.
import { type IncomingHttpHeaders, type IncomingMessage, type OutgoingHttpHeaders, request as openRequest, type ServerResponse } from "node:http";
import type { HeldBody } from "./bodies.ts";
import { DEADLINE_HEADER, type Deadline, leftOf, refusalOf } from "./deadline.ts";
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

function once({ sent, placed, response, limits, mayRetry, signal, onFirstByte }: AttemptOptions, fresh: boolean): Promise<Outcome | "stale"> {
  const { engine } = placed;
  return new Promise((resolve) => {
    const scan = new AnswerScan();
    let status = 0;
    let began = false;
    let isOpenStream = false;
    let bytesBefore = 0;
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
      asking.destroy();
    };
    const bound = (ms: number, why: string) => {
      clearTimeout(timer);
      timer = setTimeout(() => fail(new Refusal("engine_timeout", `the engine ${engine.name} ${why}`), false), ms);
    };
    const boundIdle = () => {
      bound(limits.idleMs, `sent nothing for ${limits.idleMs / 1000} s (router.idle_seconds)`);
      isIdleBound = true;
    };
    const end = (refusal: Refusal) => {
      if (!began) return settle({ end: "failed", refusal });
      cut(response, isOpenStream && scan.endsEvent, sent.path, refusal);
      settle({ end: "cut", status, why: refusal.message });
    };
    const fail = (refusal: Refusal, certain: boolean) => {
      if (over) return;
      engine.failed(refusal.message, certain);
      end(refusal);
      asking.destroy();
    };
    const asking = openRequest(
      engine.url + sent.target,
      { agent: fresh ? false : engine.agent, method: sent.method, headers: headersFor(sent, placed) },
      (answer) => {
        status = answer.statusCode ?? 502;
        if (ELSEWHERE.includes(status) && mayRetry()) {
          fail(new Refusal("engine_failed", `the engine ${engine.name} answered ${status}`), false);
          return;
        }
        // A full engine works, so its circuit stays closed; where no other one can take the request, the client gets the engine's own answer.
        if (status === FULL && mayRetry()) {
          end(new Refusal("engine_failed", `the engine ${engine.name} is full (${FULL})`));
          asking.destroy();
          return;
        }
        // Half an answer is refused as long as the client has none of it: its head waits for the first byte of its body.
        const begin = () => {
          if (began || over) return;
          began = true;
          isOpenStream = (answer.headers["content-type"] ?? "").startsWith("text/event-stream") && answer.headers["content-length"] === undefined;
          try {
            // Only an answer of unknown length can have more behind its body; for others the client reads its usage.
            if (answer.headers["content-length"] === undefined && takesTrailers(response, sent.method, status)) response.setHeader("trailer", CACHED);
            response.writeHead(status, headersOf(answer, placed));
          } catch (error) {
            // A status or a header that HTTP does not have.
            began = false;
            fail(new Refusal("engine_failed", `the engine ${engine.name} answered with a head that cannot be passed on: ${(error as Error).message}`), false);
            return;
          }
          if (status < 500) engine.succeeded();
          onFirstByte();
        };
        answer.on("data", (chunk: Buffer) => {
          if (over) return;
          begin();
          if (over) return;
          scan.take(chunk);
          // A stream of many small chunks would spend much of its time on new timers.
          if (isIdleBound) timer?.refresh();
          else boundIdle();
          if (response.write(chunk)) return;
          // The engine waits while the client reads slowly.
          answer.pause();
          clearTimeout(timer);
          isIdleBound = false;
          // That is the client's fault, so the engine is not blamed.
          timer = setTimeout(() => {
            end(new Refusal("client_gone", `the client read nothing for ${limits.firstByteMs / 1000} s (router.first_byte_seconds)`));
            asking.destroy();
          }, limits.firstByteMs);
          response.once("drain", () => {
            if (over) return;
            boundIdle();
            answer.resume();
          });
        });
        answer.on("end", () => {
          if (over || !answer.complete) return;
          begin();
          if (over) return;
          const { cachedTokens } = scan.usage();
          if (cachedTokens !== undefined && response.getHeader("trailer") === CACHED) response.addTrailers({ [CACHED]: String(cachedTokens) });
          response.end();
          settle({ end: "answered", status, scan });
        });
        answer.on("close", () => {
          if (!answer.complete) fail(new Refusal("engine_failed", `the engine ${engine.name} broke its answer off`), false);
        });
        answer.on("error", () => {});
      },
    );
    if (signal.aborted) return leave();
    signal.addEventListener("abort", leave, { once: true });
    timer = setTimeout(
      () => fail(new Refusal("engine_failed", `the engine ${engine.name} took no connection within ${limits.connectMs} ms (router.connect_timeout_ms)`), false),
      limits.connectMs,
    );
    const connected = () => bound(limits.firstByteMs, `sent no answer within ${limits.firstByteMs / 1000} s (router.first_byte_seconds)`);
    asking.on("socket", (socket) => {
      bytesBefore = socket.bytesRead;
      if (socket.connecting) socket.once("connect", connected);
      else connected();
    });
    asking.on("error", (error: NodeJS.ErrnoException) => {
      if (over) return;
      const isStale = asking.reusedSocket && asking.socket?.bytesRead === bytesBefore && ["ECONNRESET", "EPIPE"].includes(error.code ?? "");
      if (isStale) return settle("stale");
      const certain = ["ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND"].includes(error.code ?? "");
      fail(new Refusal("engine_failed", `the engine ${engine.name} gave no answer: ${error.message}`), certain);
    });
    asking.end(sent.body.bytes);
  });
}

/** Trailers need chunks, which a client of HTTP/1.0 and an answer without a body do not have. */
function takesTrailers(response: ServerResponse, method: string, status: number): boolean {
  return response.useChunkedEncodingByDefault && method !== "HEAD" && status !== 204 && status !== 304;
}

function headersFor({ headers, body, method, deadline }: Sent, { engine }: Placed): OutgoingHttpHeaders {
  const named = new Set((headers.connection ?? "").toLowerCase().split(/[ ,]+/));
  const out: OutgoingHttpHeaders = {};
  for (const [name, value] of Object.entries(headers)) if (!ownHeaders.has(name) && !named.has(name)) out[name] = value;
  if (deadline !== undefined) out[DEADLINE_HEADER] = leftOf(deadline);
  if (engine.record.api_key !== undefined) out["authorization"] = `Bearer ${engine.record.api_key}`;
  if (body.bytes.length > 0 || (method !== "GET" && method !== "HEAD")) out["content-length"] = body.bytes.length;
  return out;
}

function headersOf(answer: IncomingMessage, { engine, expectedCached, prefill }: Placed): OutgoingHttpHeaders {
  const out: OutgoingHttpHeaders = {};
  for (const [name, value] of Object.entries(answer.headers)) if (!ownHeaders.has(name) || name === "content-length") out[name] = value;
  out["x-svc-instance"] = engine.name;
  if (prefill !== undefined) out["x-svc-prefill-instance"] = prefill.engine.name;
  if (expectedCached !== undefined) out["x-svc-expected-cached-tokens"] = expectedCached;
  return out;
}

/** A stream that ends between two events gets one more that says why; anything else ends without its last chunk. */
function cut(response: ServerResponse, takesEvent: boolean, path: string, refusal: Refusal): void {
  if (!takesEvent) {
    response.destroy();
    return;
  }
  const named = path === "/v1/messages" || path === "/v1/responses" ? "event: error\n" : "";
  response.end(`${named}data: ${JSON.stringify(errorBody(refusal.code, refusal.message))}\n\n`);
}
