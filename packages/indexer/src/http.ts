// The HTTP server: routes by method and path, failures as {error, reason, field?, index?}.
import { type AddressInfo, createServer } from "node:net";
import type { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { asFailure } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import { Connection, type Front } from "./http-connection.ts";
import { type Reason, Refusal } from "./refusal.ts";
import type { Turns } from "./turns.ts";

/** How often requests that do not become whole are looked for. */
const CHECK_MS = 250;
/** Ended in one look: each takes a while. */
const MAX_ENDED = 64;
/** Parts of bodies that are kept, over all connections; never less than two bodies. */
const MAX_BODIES_BYTES = 128 * 1024 * 1024;
/** Requests under way get this long when the server stops. */
const DRAIN_MS = 4_000;

export type Request = {
  readonly method: string;
  readonly path: string;
  /** The query string, without its mark. */
  readonly search: string;
  /** The content type without parameters; "" when none was sent. */
  readonly type: string;
  readonly accept: string;
  /** The API key or bearer token that came with it. */
  readonly credential: string | undefined;
  /** The client's address. */
  readonly peer: string;
  /** Valid until the handler returns or waits: the connection reads into it again. */
  readonly body: Buffer;
  /** The body stays valid after that, too: it has a buffer of its own. */
  readonly bodyStays: boolean;
  readonly startedMs: number;
};
export type Answer = {
  readonly body: Buffer | string;
  readonly type: string;
  readonly status?: number;
  /** Sent instead of the body, as fast as the client takes it; of a promised answer only. */
  readonly file?: { readonly stream: Readable; readonly size: number };
};
export type Handler = (request: Request) => Answer | Promise<Answer>;
/** By path, then by method. */
export type Routes = Readonly<Record<string, Readonly<Record<string, Handler>>>>;

export type HttpOptions = {
  readonly listen: { readonly host: string; readonly port: number };
  readonly routes: Routes;
  /** Answered at once, whatever else waits. */
  readonly urgent: readonly string[];
  readonly turns: Turns;
  readonly maxBodyBytes: number;
  readonly maxConnections: number;
  readonly log: Log;
  readonly onAnswer: (path: string, status: number, seconds: number) => void;
};
export type HttpServer = { readonly port: number; close(): Promise<void> };

/** Listens at once. */
export async function openHttp(options: HttpOptions): Promise<HttpServer> {
  const { routes, log, turns } = options;
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
    return turns.run(request.peer, () => handlerOf(routes, request)(request));
  }
  const front: Front = {
    maxBodyBytes: options.maxBodyBytes,
    draining: false,
    answer(request) {
      const failed = (error: unknown) => counted(request, refused(error, log, `${request.method} ${request.path}`));
      try {
        const now = options.urgent.includes(request.path) || turns.open;
        // Its bytes are read into again before its turn comes.
        const kept = now || request.bodyStays ? request : { ...request, body: Buffer.from(request.body), bodyStays: true };
        const answer = now ? handlerOf(routes, request)(request) : inTurn(kept);
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
