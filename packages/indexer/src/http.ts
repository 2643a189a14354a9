// The HTTP server: routes by method and path, failures as {error, reason, field?, index?}.
import { type AddressInfo, createServer } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { asFailure } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import { Connection, type Front } from "./http-connection.ts";
import type { Answer, Handler, Request, Routes } from "./http-exchange.ts";
import type { LoopShare } from "./loop-share.ts";
import { type Reason, Refusal } from "./refusal.ts";

/** How often requests that do not become whole are looked for. */
const CHECK_MS = 250;
/** Ended in one look: each takes a while. */
const MAX_ENDED = 64;
/** Parts of bodies that are kept, over all connections; never less than two bodies. */
const MAX_BODIES_BYTES = 128 * 1024 * 1024;
/** Requests under way get this long when the server stops. */
const DRAIN_MS = 4_000;

export type HttpOptions = {
  readonly listen: { readonly host: string; readonly port: number };
  readonly routes: Routes;
  /** Answered at once, whatever else waits. */
  readonly urgent: readonly string[];
  readonly share: LoopShare;
  readonly maxBodyBytes: number;
  readonly maxConnections: number;
  readonly log: Log;
  readonly onAnswer: (path: string, status: number, seconds: number) => void;
};
export type HttpServer = { readonly port: number; close(): Promise<void> };

/** Listens at once. */
export async function openHttp(options: HttpOptions): Promise<HttpServer> {
  const { routes, log, share } = options;
  // By when each was last answered, the longest ago first.
  const connections = new Set<Connection>();
  const mostBodyBytes = Math.max(MAX_BODIES_BYTES, 2 * options.maxBodyBytes);
  let bodyBytes = 0;

  function counted(request: Request, answer: Answer): Answer {
    // A path that no route has would make a label of whatever was asked.
    options.onAnswer(Object.hasOwn(routes, request.path) ? request.path : "other", answer.status ?? 200, (performance.now() - request.startedMs) / 1000);
    return answer;
  }
  async function inTurn(request: Request): Promise<Answer> {
    return share.run(request.peer, () => handlerOf(routes, request)(request));
  }
  const front: Front = {
    maxBodyBytes: options.maxBodyBytes,
    draining: false,
    answer(request) {
      const failed = (error: unknown) => counted(request, refused(error, log, `${request.method} ${request.path}`));
      try {
        const now = options.urgent.includes(request.path) || share.open;
        // Its bytes are read into again before its turn comes.
        const kept = now || request.bodyStays ? request : { ...request, body: Buffer.from(request.body), bodyStays: true };
        const answer = now ? share.timed(() => handlerOf(routes, request)(request)) : inTurn(kept);
        return answer instanceof Promise ? answer.then((late) => counted(request, late), failed) : counted(request, answer);
      } catch (error) {
        return failed(error);
      }
    },
    refuse: (refusal) => refused(refusal, log, "a request"),
    keep(connection, bytes) {
      bodyBytes += bytes;
      while (bodyBytes > mostBodyBytes) {
        // Who has been at it the longest gives way: a client at ordinary speed is done by then.
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

  // Connections are taken over before anything is read from them.
  const server = createServer({ pauseOnConnect: true, noDelay: true, keepAlive: true }, (accepted) => {
    accepted.on("error", () => {});
    if (connections.size >= options.maxConnections) {
      // Of the oldest some are looked at: nearly all of them wait.
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
