// The HTTP server: the router's own routes, and the front for everything else.

import type { Log } from "@svc/kit/log.ts";
import type { Metrics } from "@svc/kit/metrics.ts";
import { type AdminOptions, admin, describe } from "./admin.ts";
import type { Bodies } from "./bodies.ts";
import { send, sendRefusal } from "./client/answers.ts";
import type { ClientRequest } from "./client/request.ts";
import { ClientServer } from "./client/server.ts";
import type { Engine } from "./engine.ts";
import type { Front } from "./front.ts";
import { Refusal } from "./refusals.ts";
import type { RouterMetrics } from "./router-metrics.ts";

export type ServerOptions = {
  readonly listen: { readonly host: string; readonly port: number };
  readonly engines: readonly Engine[];
  /** Sources of discovery that cannot be read, and why. */
  readonly troubles: ReadonlyMap<string, string>;
  readonly front: Front;
  readonly bodies: Bodies;
  readonly metrics: Metrics;
  readonly counted: RouterMetrics;
  readonly admin: AdminOptions;
  readonly log: Log;
};
export type RouterServer = { readonly port: number; readonly maxConnections: number; stop(): void; close(): Promise<void> };

export async function openServer(options: ServerOptions): Promise<RouterServer> {
  const { listen, bodies, front, counted, log } = options;
  const failed = (error: unknown, request: ClientRequest) => {
    const refusal = error instanceof Refusal ? error : new Refusal("internal", "internal error; the router's log says why");
    if (!(error instanceof Refusal)) log.error({ err: error, path: request.path }, "a request failed");
    counted.refused.inc({ code: refusal.code });
    sendRefusal(request, refusal);
  };
  let isStopping = false;
  const server = new ClientServer({
    listen,
    bodies,
    dropsKey: front.hasKey,
    admit(request) {
      if (ownPath(request) === undefined) front.authenticate(request);
    },
    serve: (request) => void handle(options, request, isStopping).catch((error: unknown) => failed(error, request)),
    refused: ({ code }) => counted.refused.inc({ code }),
    onFault: (error) => log.error({ err: error }, "the listener failed"),
  });
  await server.listen();
  return {
    port: server.port,
    maxConnections: server.maxConnections,
    stop() {
      isStopping = server.isStopping = true;
    },
    close: () => server.close(),
  };
}

/** The route of the router itself that a request names; undefined: the request is for an engine. */
function ownPath({ path, method }: ClientRequest): "health" | "metrics" | "admin" | "models" | undefined {
  const isRead = method === "GET" || method === "HEAD";
  if (path === "/health" && isRead) return "health";
  if (path === "/metrics" && isRead) return "metrics";
  if (path === "/v1/models" && isRead) return "models";
  return path === "/admin" || path.startsWith("/admin/") ? "admin" : undefined;
}

async function handle(options: ServerOptions, request: ClientRequest, isStopping: boolean): Promise<void> {
  const { engines, front, metrics } = options;
  const { path } = request;
  const own = ownPath(request);
  if (own === "health") return answerHealth(options, request, isStopping);
  if (own === "metrics") return send(request, 200, await metrics.text(), metrics.contentType);
  if (own === "admin") return admin(options.admin, request);
  if (isStopping) throw new Refusal("shutting_down", "the router is stopping", 1);
  if (own === "models") return answerModels(engines, request);
  if (!path.startsWith("/")) throw new Refusal("invalid_request", `expected a path that begins with "/", got ${JSON.stringify(path.slice(0, 100))}`);
  return front.handle(request);
}

/** 503 where no engine can be chosen, so that a balancer in front of several routers leaves this one out. */
function answerHealth({ engines, troubles }: ServerOptions, request: ClientRequest, isStopping: boolean): void {
  const fit = engines.filter((engine) => engine.unfit === undefined).length;
  const status = isStopping ? "stopping" : fit > 0 ? "ok" : "no engine can be chosen";
  send(
    request,
    status === "ok" ? 200 : 503,
    JSON.stringify({
      status,
      ...(troubles.size === 0 ? {} : { sources: [...troubles].map(([source, because]) => ({ source, because })) }),
      engines: engines.map(describe).map(({ name, fit: isFit, because }) => ({ name, fit: isFit, because })),
    }),
  );
}

/** Models of all engines that can be chosen, each once. */
function answerModels(engines: readonly Engine[], request: ClientRequest): void {
  const fit = engines.filter((engine) => engine.unfit === undefined);
  if (fit.length === 0) throw new Refusal("no_engine", `no engine can be chosen: ${engines.map(({ name, unfit }) => `${name}: ${unfit}`).join("; ")}`, 1);
  const cards = new Map(fit.flatMap(({ models }) => models ?? []).map((card) => [card.id, card]));
  send(request, 200, JSON.stringify({ object: "list", data: [...cards.values()] }));
}
