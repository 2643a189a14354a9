// The HTTP server: routes by method and path, failures as {error, reason, field?, index?}.
import { type AddressInfo, createServer } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { asFailure } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import { Connection, type Front } from "./http-connection.ts";
import { Refusal } from "./refusal.ts";

const MAX_CONNECTIONS = 8192;
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
  /** Valid until the handler returns or waits: the connection reads into it again. */
  readonly body: Buffer;
  readonly startedMs: number;
};
export type Answer = { readonly body: Buffer | string; readonly type: string; readonly status?: number };
export type Handler = (request: Request) => Answer | Promise<Answer>;
/** By path, then by method. */
export type Routes = Readonly<Record<string, Readonly<Record<string, Handler>>>>;

export type HttpOptions = {
  readonly listen: { readonly host: string; readonly port: number };
  readonly routes: Routes;
  readonly maxBodyBytes: number;
  readonly log: Log;
  readonly onAnswer: (path: string, status: number, seconds: number) => void;
};
export type HttpServer = { readonly port: number; close(): Promise<void> };

/** Listens at once. */
export async function openHttp(options: HttpOptions): Promise<HttpServer> {
  const { routes, log } = options;
  const connections = new Set<Connection>();

  function tell(request: Request, answer: Answer): Answer {
    // A path that no route has would make a label of whatever was asked.
    options.onAnswer(Object.hasOwn(routes, request.path) ? request.path : "other", answer.status ?? 200, (performance.now() - request.startedMs) / 1000);
    return answer;
  }
  const front: Front = {
    maxBodyBytes: options.maxBodyBytes,
    draining: false,
    answer(request) {
      const failed = (error: unknown) => tell(request, refused(error, log, `${request.method} ${request.path}`));
      try {
        const answer = handlerOf(routes, request)(request);
        return answer instanceof Promise ? answer.then((late) => tell(request, late), failed) : tell(request, answer);
      } catch (error) {
        return failed(error);
      }
    },
    refuse: (refusal) => refused(refusal, log, "a request"),
    closed: (connection) => void connections.delete(connection),
  };

  // Connections are taken over before anything is read from them.
  const server = createServer({ pauseOnConnect: true, noDelay: true, keepAlive: true }, (accepted) => {
    accepted.on("error", () => {});
    connections.add(new Connection(front, accepted));
  });
  server.maxConnections = MAX_CONNECTIONS;
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
    },
  };
}

function handlerOf(routes: Routes, { method, path }: Request): Handler {
  const byMethod = Object.hasOwn(routes, path) ? routes[path] : undefined;
  if (byMethod === undefined) throw new Refusal("not_found", `${path}: there is no such path; ${Object.keys(routes).join(", ")} exist`);
  const handler = byMethod[method === "HEAD" ? "GET" : method];
  if (handler === undefined) throw new Refusal("method_not_allowed", `${method} ${path}: asked for ${Object.keys(byMethod).join(" or ")}`);
  return handler;
}

function refused(error: unknown, log: Log, what: string): Answer {
  const failure = asFailure(error);
  if (failure.row.http >= 500) log.error({ err: error, request: what }, failure.message);
  const body =
    failure instanceof Refusal
      ? failure.body()
      : { error: failure.name === "INTERNAL" ? "internal error; the log tells more" : failure.message, reason: "internal" };
  return { status: failure.row.http, type: "application/json", body: JSON.stringify(body) };
}
