// The HTTP server: the router's own routes, and the front for everything else.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Log } from "@svc/kit/log.ts";
import type { Metrics } from "@svc/kit/metrics.ts";
import { type AdminOptions, admin, describe } from "./admin.ts";
import type { Engine } from "./engine.ts";
import type { Front } from "./front.ts";
import { Refusal, refuse, send } from "./refusals.ts";
import type { RouterMetrics } from "./router-metrics.ts";

const MAX_HEAD_BYTES = 64 * 1024;
const HEAD_MS = 60_000;
const BODY_MS = 300_000;
const KEEP_ALIVE_MS = 120_000;
/** Answers under way at a stop may end within this. */
const DRAIN_MS = 8_000;

export type ServerOptions = {
  readonly listen: { readonly host: string; readonly port: number };
  readonly engines: readonly Engine[];
  readonly front: Front;
  readonly metrics: Metrics;
  readonly counted: RouterMetrics;
  readonly admin: AdminOptions;
  readonly log: Log;
};
export type RouterServer = { readonly port: number; stop(): void; close(): Promise<void> };

export async function openServer(options: ServerOptions): Promise<RouterServer> {
  let isStopping = false;
  const server = createServer(
    { maxHeaderSize: MAX_HEAD_BYTES, headersTimeout: HEAD_MS, requestTimeout: BODY_MS, keepAliveTimeout: KEEP_ALIVE_MS, noDelay: true },
    (request, response) => {
      if (isStopping) response.setHeader("connection", "close");
      // A client may leave in the middle of its answer.
      response.on("error", () => {});
      handle(options, request, response, isStopping).catch((error: unknown) => {
        if (!(error instanceof Refusal) && response.destroyed) return;
        const refusal = error instanceof Refusal ? error : new Refusal("internal", "internal error; the router's log says why");
        if (!(error instanceof Refusal)) options.log.error({ err: error, path: request.url?.split("?")[0] }, "a request failed");
        options.counted.refused.inc({ code: refusal.code });
        refuse(response, refusal);
      });
    },
  );
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.listen, resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    stop() {
      isStopping = true;
    },
    close: () => closed(server),
  };
}

async function closed(server: Server): Promise<void> {
  const end = new Promise<void>((resolve) => server.close(() => resolve()));
  server.closeIdleConnections();
  const timer = setTimeout(() => server.closeAllConnections(), DRAIN_MS);
  const idle = setInterval(() => server.closeIdleConnections(), 50);
  await end;
  clearTimeout(timer);
  clearInterval(idle);
}

async function handle(options: ServerOptions, request: IncomingMessage, response: ServerResponse, isStopping: boolean): Promise<void> {
  const { engines, front, metrics } = options;
  const [path = "/"] = (request.url ?? "/").split("?");
  const isRead = request.method === "GET" || request.method === "HEAD";
  if (path === "/health" && isRead) return answerHealth(engines, response, isStopping);
  if (path === "/metrics" && isRead) return send(response, 200, await metrics.text(), metrics.contentType);
  if (path === "/admin" || path.startsWith("/admin/")) return admin(options.admin, request, response, path);
  if (isStopping) throw new Refusal("shutting_down", "the router is stopping", 1);
  if (path === "/v1/models" && isRead) return answerModels(engines, response);
  if (!path.startsWith("/")) throw new Refusal("invalid_request", `expected a path that begins with "/", got ${JSON.stringify(path.slice(0, 100))}`);
  return front.handle(request, response, path);
}

/** 503 where no engine can be chosen, so that a balancer in front of several routers leaves this one out. */
function answerHealth(engines: readonly Engine[], response: ServerResponse, isStopping: boolean): void {
  const fit = engines.filter((engine) => engine.unfit === undefined).length;
  const status = isStopping ? "stopping" : fit > 0 ? "ok" : "no engine can be chosen";
  send(
    response,
    status === "ok" ? 200 : 503,
    JSON.stringify({ status, engines: engines.map(describe).map(({ name, fit: isFit, because }) => ({ name, fit: isFit, because })) }),
  );
}

/** Models of all engines that can be chosen, each once. */
function answerModels(engines: readonly Engine[], response: ServerResponse): void {
  const fit = engines.filter((engine) => engine.unfit === undefined);
  if (fit.length === 0) throw new Refusal("no_engine", `no engine can be chosen: ${engines.map(({ name, unfit }) => `${name}: ${unfit}`).join("; ")}`, 1);
  const cards = new Map(fit.flatMap(({ models }) => models ?? []).map((card) => [card.id, card]));
  send(response, 200, JSON.stringify({ object: "list", data: [...cards.values()] }));
}
