// The indexer's HTTP: routes by method and path, failures as {error, reason, field?, index?}, and a share of each tick per client.
import { asFailure, type FailureName } from "@svc/contract/failures.ts";
import type { HttpOptions } from "@svc/kit/http/exchange.ts";
import { HttpServer } from "@svc/kit/http/server.ts";
import type { ListenAddress } from "@svc/kit/listen.ts";
import type { Log } from "@svc/kit/log.ts";
import type { PeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { type PeerConnection, PeerListener } from "@svc/kit/peers/peer-listener.ts";
import type { LoopShare } from "../index/loop-share.ts";
import { type Answer, type Handler, pathOf, type Request, type Routes, requestHeaders, requestOf } from "./exchange.ts";
import { type Reason, Refusal } from "./refusal.ts";

/** Probes and Prometheus have no certificate of the deployment. */
const openPaths: readonly string[] = ["/health", "/metrics"];
/** The bound of large bodies and answers over all connections; it is never less than two bodies. */
const MAX_BUFFERED_BYTES = 128 * 1024 * 1024;

export type IndexerHttpOptions = {
  readonly listen: ListenAddress;
  /** Set: `listen` speaks TLS with other servers of the deployment, and programs of this machine use a plain port of loopback. */
  readonly certificates: PeerCertificates | undefined;
  /** Lets clients without TLS use `listen` as well. */
  readonly plainClients: boolean;
  readonly routes: Routes;
  /** Paths that are answered at once, even while other requests wait. */
  readonly urgent: readonly string[];
  readonly share: LoopShare;
  readonly maxBodyBytes: number;
  readonly maxConnections: number;
  readonly log: Log;
  readonly handsOver?: HttpOptions["handsOver"];
  readonly onAnswer: (path: string, status: number, seconds: number) => void;
};

export type IndexerHttp = {
  /** The port of `listen`, and that of this machine's own programs. */
  readonly port: number;
  readonly local: ListenAddress;
  close(): Promise<void>;
};

const LOOPBACK: ListenAddress = { host: "127.0.0.1", port: 0 };

/** Opens the server; it listens when the promise resolves. */
export async function openHttp({
  listen,
  certificates,
  plainClients,
  routes,
  urgent,
  share,
  maxBodyBytes,
  maxConnections,
  log,
  handsOver,
  onAnswer,
}: IndexerHttpOptions): Promise<IndexerHttp> {
  function answer(request: Request): Answer | Promise<Answer> {
    if (urgent.includes(request.path) || share.open) return share.timed(() => handlerOf(routes, request)(request));
    // The request waits, and the connection reads into the body's buffer again before it runs.
    const kept = request.bodyStays ? request : { ...request, body: Buffer.from(request.body), bodyStays: true };
    return (async () => share.run(request.peer, () => handlerOf(routes, kept)(kept)))();
  }
  const server = new HttpServer({
    maxBodyBytes,
    bodySetting: "indexer.max_body_bytes",
    maxBufferedBytes: Math.max(MAX_BUFFERED_BYTES, 2 * maxBodyBytes),
    maxConnections,
    headers: requestHeaders,
    readsInPlace: true,
    isOpen: (method, target) => (method === "GET" || method === "HEAD") && openPaths.includes(pathOf(target)),
    handsOver,
    answer: (request) => answer(requestOf(request)),
    refuse: (error, request) => refused(error, log, request === undefined ? "a request" : `${request.method} ${pathOf(request.target)}`),
    observe(request, status, seconds) {
      if (request === undefined) return;
      const path = pathOf(request.target);
      // Unknown paths share one label, since clients choose them.
      onAnswer(Object.hasOwn(routes, path) ? path : "other", status, seconds);
    },
  });
  if (certificates === undefined) {
    await server.listen(listen);
    return { port: server.port, local: { host: listen.host, port: server.port }, close: () => server.close() };
  }
  const take = ({ socket, reset, stranger }: PeerConnection) => server.carry(socket, { reset, ...(stranger === undefined ? {} : { stranger }) });
  const takePlain = plainClients ? take : undefined;
  const secure = new PeerListener({ listen, certificates, protocols: ["http/1.1"], what: "the indexer", log, take, takePlain });
  await secure.listen();
  await server.listen(LOOPBACK);
  return {
    port: secure.port,
    local: { ...LOOPBACK, port: server.port },
    async close() {
      secure.stop();
      await server.close();
      secure.close();
    },
  };
}

function handlerOf(routes: Routes, { method, path, encoding }: Request): Handler {
  const byMethod = Object.hasOwn(routes, path) ? routes[path] : undefined;
  if (byMethod === undefined) throw new Refusal("not_found", `${path}: there is no such path; ${Object.keys(routes).join(", ")} exist`);
  const handler = byMethod[method === "HEAD" ? "GET" : method];
  if (handler === undefined) throw new Refusal("method_not_allowed", `${path}: expected ${Object.keys(byMethod).join(" or ")}, got ${method}`);
  if (!/^\s*(identity)?\s*$/i.test(encoding)) {
    const given = JSON.stringify(encoding.slice(0, 100));
    throw new Refusal("unsupported", `Content-Encoding: expected none, got ${given}; send the body uncompressed`, {}, "UNSUPPORTED_MEDIA_TYPE");
  }
  return handler;
}

/** The reasons of failures that the indexer's own code does not refuse with one. */
const reasons: Partial<Record<FailureName, Reason>> = {
  INVALID_REQUEST: "invalid_value",
  PAYLOAD_TOO_LARGE: "too_large",
  HEADERS_TOO_LARGE: "too_large",
  TIMED_OUT: "timeout",
  DISK_FULL: "disk_full",
  CAPACITY_EXHAUSTED: "busy",
  ACCESS_DENIED: "unauthorized",
};

function refused(error: unknown, log: Log, what: string): Answer {
  const failure = asFailure(error);
  if (failure.row.http >= 500 && failure.name !== "TIMED_OUT") log.error({ err: error, request: what }, failure.message);
  const body =
    failure instanceof Refusal
      ? failure.body()
      : { error: failure.name === "INTERNAL" ? "internal error; the log has the details" : failure.message, reason: reasons[failure.name] ?? "internal" };
  return { status: failure.row.http, type: "application/json", body: JSON.stringify(body) };
}
