// The console of one server: its parts, made from settings, and what the server's main adds to itself.
import { randomUUID } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { SvcClient } from "@svc/contract/client.ts";
import { Calls } from "@svc/contract/client-calls.ts";
import { CONSOLE_SOCKET } from "@svc/contract/console.ts";
import { Failure } from "@svc/contract/failures.ts";
import { streamEvents } from "@svc/contract/observe.ts";
import type { FastifyInstance } from "fastify";
import { DEPLOYMENT } from "../keys/principal.ts";
import type { Context, RawScope } from "../serve.ts";
import { Assets } from "./assets.ts";
import { Board } from "./board.ts";
import { endedRows } from "./ended.ts";
import { Guard } from "./guard.ts";
import { Inside } from "./inside.ts";
import { Live } from "./live.ts";
import type { ConsoleOptions, Started } from "./options.ts";
import { Ring } from "./ring.ts";
import { consoleRoutes } from "./routes.ts";
import { Sessions } from "./sessions.ts";

const ROW_MS = 10_000;

export interface Console {
  /** Adds the routes to the `raw` scope of serve(). */
  routes(scope: RawScope): void;
  /** Connects the console to the server it is part of: calls go through `app`, streams through `url`; browsers reach it at `port`. */
  start(app: FastifyInstance, url: string, port: number): void;
  /** Ends the pages' sockets; called before the proxy waits for requests in flight. */
  close(): void;
}

export function openConsole(options: ConsoleOptions): Console {
  const { settings, apiKey, domains, log, metrics, row } = options;
  const guard = new Guard({ hosts: settings.hosts, domains });
  const sessions = new Sessions({ apiKey, hours: settings.session_hours, ...(options.keySource === undefined ? {} : { keySource: options.keySource }) });
  const assets = new Assets(options.folder ?? process.env["SVC_CONSOLE"]);
  const ring = options.ring ?? new Ring(metrics, options.series, options.home);
  let started: Started | undefined;
  let board: Board | undefined;
  metrics.gauge("svc_console_pages", "Console pages with an open socket", [], (gauge) => gauge.set(started?.live.pages ?? 0));

  return {
    routes(scope) {
      consoleRoutes(scope, { options, guard, sessions, assets, ring, started: () => started ?? notStarted() });
    },
    start(app, url, port) {
      const client = new SvcClient({ baseURL: url, apiKey });
      const inside = row === undefined ? undefined : new Inside(client);
      const calls = new Calls({ baseURL: url, apiKey });
      board = row === undefined ? undefined : new Board({ client, row, ended: () => endedRows(calls), newest: (signal) => newestID(calls, signal) }, log);
      const live = new Live({ guard, sessions, board, inside, log });
      app.server.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
        if (settings.mode !== "off" && request.url === CONSOLE_SOCKET) live.upgrade(request, socket, head);
        else socket.destroy();
      });
      started = { app, domain: domains[0] ?? (row === undefined ? "" : `localhost:${port}`), live, inside, client };
      if (options.ring === undefined) ring.start();
    },
    close() {
      board?.close();
      ring.close();
      started?.live.close();
      started?.inside?.close();
    },
  };
}

function notStarted(): never {
  throw new Failure("SHUTTING_DOWN", "the server is starting", { retryAfterSeconds: 1 });
}

/** The context of a handler that this process calls by itself, for no client. */
export function quietContext(): Context {
  return { status() {}, header() {}, requestID: randomUUID(), client: "", signal: AbortSignal.timeout(ROW_MS), trace: {}, principal: DEPLOYMENT };
}

/** Returns the newest position: a stream without a start begins by sending it. */
async function newestID(calls: Calls, signal: AbortSignal): Promise<string> {
  const one = new AbortController();
  const response = await calls.open(streamEvents.path, { accept: "text/event-stream" }, AbortSignal.any([one.signal, signal]));
  const decoder = new TextDecoder();
  let text = "";
  try {
    for await (const chunk of response.body ?? []) {
      text += decoder.decode(chunk, { stream: true });
      const [, id] = /^id: ?(\S+)$/m.exec(text) ?? [];
      if (id !== undefined && text.includes("\n\n")) return id;
    }
  } finally {
    one.abort();
  }
  throw new Failure("SERVER_UNREACHABLE", `${calls.baseURL} ended the stream of events before it began`);
}
