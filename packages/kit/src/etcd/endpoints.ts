// Calls of etcd's JSON gateway: they try one member after another until one answers; each attempt, the whole call and the answer are
// bounded.
import { type ClientRequest, type IncomingMessage, Agent as PlainAgent, request as plainRequest } from "node:http";
import { Agent as TlsAgent, request as tlsRequest } from "node:https";
import { setTimeout as sleep } from "node:timers/promises";
import { TLSSocket } from "node:tls";
import { Failure, fail } from "@svc/contract/failures.ts";
import { z } from "zod";
import type { PeerCertificates } from "../peers/peer-certificates.ts";
import { PeerClient } from "../peers/peer-client.ts";

export type EtcdOptions = {
  /** One `http://HOST:PORT` per member. */
  readonly endpoints: readonly string[];
  /** The time one member has to answer before the next one is tried. */
  readonly attemptMs?: number;
  /** The time a whole call has, over all members. */
  readonly callMs?: number;
  /** The interval of checks that the member which watches read from still belongs to the cluster. */
  readonly checkMs?: number;
  /** Shown to members at `https://` URLs; absent: members need no certificate of their clients, and a public authority signed theirs. */
  readonly certificates?: PeerCertificates | undefined;
};

/** A call of kind `once` is never sent to a second member if the first one may have executed it. */
export type CallKind = "repeatable" | "once";

export interface Endpoints {
  readonly urls: readonly string[];
  /** @throws ETCD_UNAVAILABLE, with `details.outcome` "unknown" if the call may have taken effect; ETCD_REFUSED. */
  call<T>(path: string, body: object, shape: z.ZodType<T>, kind?: CallKind): Promise<T>;
  /** Like `call`, with a single attempt at this member. */
  callOne<T>(url: string, path: string, body: object, shape: z.ZodType<T>): Promise<T>;
  /** Opens an endless answer of this member; the caller must destroy the request. */
  stream(url: string, path: string, body: object): Promise<{ readonly call: ClientRequest; readonly answer: IncomingMessage }>;
  /** The member that answered last. */
  readonly preferred: string;
  /** Makes `preferred` name another member. */
  avoid(url: string): void;
  readonly attemptMs: number;
  close(): void;
}

const ATTEMPT_MS = 1_000;
const CALL_MS = 5_000;
const FIRST_PAUSE_MS = 25;
const LONGEST_PAUSE_MS = 400;
const MAX_ENDPOINTS = 16;
const SOCKETS_PER_MEMBER = 32;
/** etcd's default limit of a request. */
const MAX_REQUEST_BYTES = 1_500_000;
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
const MAX_SHOWN_CHARS = 300;
/** gRPC's codes for "no leader", "leader changed" and "request timed out": another attempt may succeed. */
const passingCodes: ReadonlySet<number | undefined> = new Set([4, 14]);
const unsentCodes: ReadonlySet<string | undefined> = new Set(["ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND", "EAI_AGAIN"]);

/** A setting that lists etcd's client addresses: `URL[,URL]`. */
export const etcdEndpoints = z
  .array(
    z.string().refine((text) => {
      const url = URL.canParse(text) ? new URL(text) : undefined;
      return url !== undefined && /^https?:$/.test(url.protocol) && url.pathname === "/" && url.search === "" && url.username === "";
    }, "expected http://HOST:PORT of etcd's client port"),
  )
  .max(MAX_ENDPOINTS);

/** An attempt without a usable answer. `isSent`: the member may have executed the request. */
class Unanswered extends Error {
  readonly isSent: boolean;
  constructor(message: string, isSent: boolean) {
    super(message);
    this.isSent = isSent;
  }
}

const refusal = z.object({ code: z.number().optional(), message: z.string().optional(), error: z.unknown() });

export function openEndpoints({ endpoints, attemptMs = ATTEMPT_MS, callMs = CALL_MS, certificates }: EtcdOptions): Endpoints {
  const parsed = etcdEndpoints.min(1).safeParse(endpoints);
  if (!parsed.success) fail("SETTING_INVALID", `etcd: ${parsed.error.issues[0]?.message}, got ${JSON.stringify(endpoints)}`);
  const urls = parsed.data.map((text) => new URL(text).origin);
  const pool = { keepAlive: true, maxSockets: SOCKETS_PER_MEMBER };
  const agents = { "http:": new PlainAgent(pool), "https:": new TlsAgent(pool) };
  const secured = certificates === undefined ? undefined : new PeerClient(certificates, "etcd");
  // Watches keep their connection; other calls get the new certificate.
  certificates?.onChange(() => {
    agents["https:"] = new TlsAgent(pool);
  });
  let current = 0;
  let isClosed = false;

  function begin(url: string, path: string, text: string): ClientRequest {
    const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(text) };
    const isTls = url.startsWith("https:");
    const options = { method: "POST", headers, agent: agents[isTls ? "https:" : "http:"] };
    const call = isTls && secured !== undefined ? secured.requestBy(`${url}${path}`, options) : (isTls ? tlsRequest : plainRequest)(`${url}${path}`, options);
    call.end(text);
    return call;
  }

  /** Waits for the head of the answer. @throws Unanswered. */
  function headOf(call: ClientRequest, url: string): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      let isConnected = false;
      call.once("socket", (socket) => {
        if (!socket.connecting) isConnected = true;
        else socket.once(socket instanceof TLSSocket ? "secureConnect" : "connect", () => (isConnected = true));
      });
      call.once("response", resolve);
      call.once("error", (error: NodeJS.ErrnoException) => reject(new Unanswered(`${url}: ${error.message}`, isConnected && !unsentCodes.has(error.code))));
    });
  }

  async function bodyOf(answer: IncomingMessage, url: string): Promise<string> {
    const chunks: Buffer[] = [];
    let bytes = 0;
    try {
      for await (const chunk of answer as AsyncIterable<Buffer>) {
        bytes += chunk.length;
        if (bytes > MAX_ANSWER_BYTES) break;
        chunks.push(chunk);
      }
    } catch (error) {
      throw new Unanswered(`${url}: ${(error as Error).message}`, true);
    }
    if (bytes > MAX_ANSWER_BYTES) fail("ETCD_REFUSED", `etcd at ${url} answered more than ${MAX_ANSWER_BYTES} bytes; read fewer keys at a time`);
    return Buffer.concat(chunks).toString("utf8");
  }

  async function attempt<T>(url: string, path: string, text: string, shape: z.ZodType<T>, boundMs: number): Promise<T> {
    const call = begin(url, path, text);
    const timer = setTimeout(() => call.destroy(new Error(`no answer within ${Math.round(boundMs)} ms`)), boundMs);
    try {
      const answer = await headOf(call, url);
      const said = await bodyOf(answer, url);
      return answer.statusCode === 200 ? read(url, path, said, shape) : refused(url, path, answer.statusCode ?? 0, said);
    } finally {
      clearTimeout(timer);
      call.on("error", () => undefined).destroy();
    }
  }

  function avoid(url: string): void {
    if (urls[current] === url) current = (current + 1) % urls.length;
  }

  return {
    urls,
    attemptMs,
    avoid,
    get preferred() {
      return urls[current] as string;
    },
    async call(path, body, shape, kind = "repeatable") {
      const text = written(path, body);
      const end = performance.now() + callMs;
      let pauseMs = FIRST_PAUSE_MS;
      for (let attempts = 1; ; attempts++) {
        if (isClosed) fail("SHUTTING_DOWN", "the client of etcd is closed");
        const url = urls[current] as string;
        try {
          return await attempt(url, path, text, shape, Math.min(attemptMs, Math.max(1, end - performance.now())));
        } catch (error) {
          if (!(error instanceof Unanswered)) throw error;
          avoid(url);
          if (kind === "once" && error.isSent) throw unavailable(urls, error, "unknown");
          if (performance.now() + pauseMs >= end) throw unavailable(urls, error, "none");
        }
        if (attempts % urls.length !== 0) continue;
        await sleep(pauseMs);
        pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
      }
    },
    async callOne(url, path, body, shape) {
      return attempt(url, path, written(path, body), shape, attemptMs).catch((error: unknown) => {
        throw error instanceof Unanswered ? unavailable([url], error, error.isSent ? "unknown" : "none") : error;
      });
    },
    async stream(url, path, body) {
      const call = begin(url, path, written(path, body));
      const timer = setTimeout(() => call.destroy(new Error(`no answer within ${attemptMs} ms`)), attemptMs);
      try {
        const answer = await headOf(call, url);
        call.on("error", () => undefined);
        if (answer.statusCode !== 200) refused(url, path, answer.statusCode ?? 0, await bodyOf(answer, url));
        return { call, answer };
      } catch (error) {
        call.on("error", () => undefined).destroy();
        throw error instanceof Unanswered ? unavailable([url], error, "none") : error;
      } finally {
        clearTimeout(timer);
      }
    },
    close() {
      isClosed = true;
      agents["http:"].destroy();
      agents["https:"].destroy();
    },
  };
}

function written(path: string, body: object): string {
  const text = JSON.stringify(body);
  const bytes = Buffer.byteLength(text);
  if (bytes > MAX_REQUEST_BYTES) fail("ETCD_REFUSED", `${path}: a request of ${bytes} bytes; the maximum is ${MAX_REQUEST_BYTES}, write less at a time`);
  return text;
}

function read<T>(url: string, path: string, said: string, shape: z.ZodType<T>): T {
  try {
    return shape.parse(JSON.parse(said));
  } catch (cause) {
    return fail("ETCD_REFUSED", `${url}${path} does not answer as etcd 3.4 or newer: ${said.slice(0, MAX_SHOWN_CHARS)}`, { cause });
  }
}

/** @throws Unanswered if another attempt may succeed, otherwise ETCD_REFUSED. */
function refused(url: string, path: string, status: number, said: string): never {
  let body: z.output<typeof refusal>;
  try {
    body = refusal.parse(JSON.parse(said));
  } catch (cause) {
    return fail(
      "ETCD_REFUSED",
      `${url}${path}: expected etcd's JSON gateway, got HTTP ${status} ${said.slice(0, MAX_SHOWN_CHARS)}; is this etcd's client URL?`,
      { cause },
    );
  }
  const message = body.message ?? String(body.error);
  if (passingCodes.has(body.code)) throw new Unanswered(`${url}: ${message}`, true);
  return fail("ETCD_REFUSED", `etcd at ${url} refused ${path}: ${message}`, { details: { etcdCode: body.code ?? 0 } });
}

function unavailable(urls: readonly string[], { message, isSent }: Unanswered, outcome: "unknown" | "none"): Failure {
  const unsure = outcome === "unknown" ? "; it may have happened all the same, so read before it is repeated" : "";
  const details = { outcome: isSent ? outcome : "none" };
  return new Failure("ETCD_UNAVAILABLE", `etcd did not answer (${urls.join(", ")}): ${message}${unsure}; check that etcd runs and can be reached from here`, {
    details,
    retryAfterSeconds: 1,
  });
}
