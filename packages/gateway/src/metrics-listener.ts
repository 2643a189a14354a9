// Serves GET /metrics without a key on its own address; the public address does not serve it.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fail } from "@svc/contract/failures.ts";
import { type ListenAddress, urlOf } from "@svc/kit/listen.ts";
import type { Metrics } from "@svc/kit/metrics.ts";

export type MetricsListener = { readonly url: string; close(): Promise<void> };

const HEAD_MS = 10_000;
const MAX_CONNECTIONS = 64;

/** @throws SETTING_INVALID if it cannot listen. */
export async function openMetricsListener(address: ListenAddress, metrics: Metrics): Promise<MetricsListener> {
  const { host, port } = address;
  const server = createServer({ headersTimeout: HEAD_MS, requestTimeout: HEAD_MS }, (request, response) => {
    if (request.method !== "GET" || request.url?.split("?")[0] !== "/metrics") {
      response.writeHead(404, { "content-type": "application/json" }).end('{"code":404,"message":"GET /metrics is all that this address serves"}');
      return;
    }
    metrics.text().then(
      (text) => response.writeHead(200, { "content-type": metrics.contentType }).end(text),
      () => response.writeHead(500).end(),
    );
  });
  server.maxConnections = MAX_CONNECTIONS;
  await new Promise<void>((listening, failed) => {
    server.once("error", failed);
    server.listen(address, listening);
  }).catch((error: NodeJS.ErrnoException) => {
    const why = error.code === "EADDRINUSE" ? "the port is in use" : error.message;
    fail("SETTING_INVALID", `setting gateway.metrics_listen: cannot listen on ${host}:${port}: ${why}; choose another with --metrics-listen HOST:PORT`, {
      cause: error,
    });
  });
  return {
    url: urlOf(host, (server.address() as AddressInfo).port),
    close: () =>
      new Promise((closed) => {
        server.close(() => closed());
        server.closeAllConnections();
      }),
  };
}
