// The HTTP server: routes by method and path, failures as {error, reason, field?, index?}.
import { type AddressInfo, createServer } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { asFailure } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { LoopShare } from "../index/loop-share.ts";
import { Connection, type Front } from "./http-connection.ts";
import type { Answer, Handler, Request, Routes } from "./http-exchange.ts";
import { type Reason, Refusal } from "./refusal.ts";

/** The interval of the check for requests that do not become complete. */
const CHECK_MS = 250;
/** The maximum number of connections that one check ends, since each takes a while. */
const MAX_ENDED = 64;
/** The bound of incomplete bodies over all connections; it is never less than two bodies. */
const MAX_BODIES_BYTES = 128 * 1024 * 1024;
/** When the server stops, requests under way have this long to finish. */
const DRAIN_MS = 4_000;

export type HttpOptions = {
  readonly listen: { readonly host: string; readonly port: number };
  readonly routes: Routes;
  /** Paths that are answered at once, even while other requests wait. */
  readonly urgent: readonly string[];
  readonly share: LoopShare;
  readonly maxBodyBytes: number;
  readonly maxConnections: number;
  readonly log: Log;
  readonly onAnswer: (path: string, status: number, seconds: number) => void;
};
export type HttpServer = { readonly port: number; close(): Promise<void> };

/** Opens the server; it listens when the promise resolves. */
export async function openHttp(options: HttpOptions): Promise<HttpServer> {
  const { routes, log, share } = options;
  // Connections in the order of their last answer, the oldest first.
  const connections = new Set<Connection>();
  const mostBodyBytes = Math.max(MAX_BODIES_BYTES, 2 * options.maxBodyBytes);
  let bodyBytes = 0;

  function counted(request: Request, answer: Answer): Answer {
    // Unknown paths share one label, since clients choose them.
    options.onAnswer(Object.hasOwn(routes, request.path) ? request.path : "other", answer.status ?? 200, (performance.now() - request.startedMs) / 1000);
    return answer;
  }
  async function whenDue(request: Request): Promise<Answer> {
    return share.run(request.peer, () => handlerOf(routes, request)(request));
  }
  const front: Front = {
    maxBodyBytes: options.maxBodyBytes,
    draining: false,
    answer(request) {
      const failed = (error: unknown) => counted(request, refused(error, log, `${request.method} ${request.path}`));
      try {
        const now = options.urgent.includes(request.path) || share.open;
        // The request waits, and the connection reads into the body's buffer again before it runs.
        const kept = now || request.bodyStays ? request : { ...request, body: Buffer.from(request.body), bodyStays: true };
        const answer = now ? share.timed(() => handlerOf(routes, request)(request)) : whenDue(kept);
        return answer instanceof Promise ? answer.then((late) => counted(request, late), failed) : counted(request, answer);
      } catch (error) {
        return failed(error);
      }
    },
    refuse: (refusal) => refused(refusal, log, "a request"),
    keep(connection, bytes) {
      bodyBytes += bytes;
      while (bodyBytes > mostBodyBytes) {
        // The connection with the oldest body gives way: a client at ordinary speed is done by then.
        let slowest = connection;
        for (const other of connections) if (other.bodyBytes > 0 && other.begunMs < slowest.begunMs) slowest = other;
        slowest.giveUp(tooMany(mostBodyBytes), 503);
      }
    },
    answered(connection) {
      if (!connections.delete(connection)) return;
      connections.add(connection);
    },
    closed: (connection) => void connections.delete(connection),
  };

  // Connections are adopted before anything is read from them.
  const server = createServer({ pauseOnConnect: true, noDelay: true, keepAlive: true }, (accepted) => {
    accepted.on("error", () => {});
    if (connections.size >= options.maxConnections) {
      // A search of the oldest few is enough: nearly all of them are idle.
      let looked = 0;
      for (const oldest of connections) {
        if (++looked > 64) break;
        if (oldest.busy) continue;
        connections.delete(oldest);
        oldest.destroy();
        break;
      }
    }
    connections.add(new Connection(front, accepted));
  });
  const checking = setInterval(() => {
    const now = performance.now();
    let ended = 0;
    for (const connection of connections) {
      if (connection.endIfLate(now) && ++ended > MAX_ENDED) break;
    }
  }, CHECK_MS);
  server.maxConnections = 2 * options.maxConnections;
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.listen.port, options.listen.host, resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      front.draining = true;
      server.close();
      for (const connection of connections) if (connection.idle) connection.destroy();
      for (const until = performance.now() + DRAIN_MS; connections.size > 0 && performance.now() < until; ) await delay(20);
      for (const connection of connections) connection.destroy();
      clearInterval(checking);
    },
  };
}

function tooMany(mostBytes: number): Refusal {
  return new Refusal(
    "busy",
    `bodies under way have more than ${mostBytes} bytes together, and this one has been so the longest; repeat the request`,
    {},
    "CAPACITY_EXHAUSTED",
  );
}

function handlerOf(routes: Routes, { method, path }: Request): Handler {
  const byMethod = Object.hasOwn(routes, path) ? routes[path] : undefined;
  if (byMethod === undefined) throw new Refusal("not_found", `${path}: there is no such path; ${Object.keys(routes).join(", ")} exist`);
  const handler = byMethod[method === "HEAD" ? "GET" : method];
  if (handler === undefined) throw new Refusal("method_not_allowed", `${path}: expected ${Object.keys(byMethod).join(" or ")}, got ${method}`);
  return handler;
}

function reasonOf(name: string): Reason {
  if (name === "DISK_FULL") return "disk_full";
  return name === "CAPACITY_EXHAUSTED" ? "busy" : "internal";
}

function refused(error: unknown, log: Log, what: string): Answer {
  const failure = asFailure(error);
  if (failure.row.http >= 500) log.error({ err: error, request: what }, failure.message);
  const body =
    failure instanceof Refusal
      ? failure.body()
      : { error: failure.name === "INTERNAL" ? "internal error; the log has the details" : failure.message, reason: reasonOf(failure.name) };
  return { status: failure.row.http, type: "application/json", body: JSON.stringify(body) };
}
