// The client's own HTTP endpoint: its version, its health (whether the master knows it), and its metrics.
import { fail } from "@svc/contract/failures.ts";
import type { Answer } from "@svc/kit/http/exchange.ts";
import { HttpServer } from "@svc/kit/http/server.ts";

export type ClientHttpParts = {
  readonly version: string;
  readonly displayVersion: string;
  metrics(): Promise<string>;
  isHealthy(): boolean;
};

export type ClientHttp = { readonly port: number; close(): Promise<void> };

const MAX_CONNECTIONS = 256;
const MAX_BODY_BYTES = 1024;
const MAX_BUFFERED_BYTES = 16 << 20;
const json = (value: unknown, status = 200): Answer => ({ status, type: "application/json; charset=utf-8", body: Buffer.from(JSON.stringify(value)) });

/** @throws SETTING_INVALID when the port is taken. */
export async function openClientHttp(host: string, port: number, parts: ClientHttpParts): Promise<ClientHttp> {
  const routes: Record<string, () => Answer | Promise<Answer>> = {
    "/version": () => json({ version: parts.version, display_version: parts.displayVersion }),
    "/health": () => (parts.isHealthy() ? json({ status: "healthy", code: 0 }) : json({ status: "unhealthy", code: 1 }, 503)),
    "/metrics": async () => ({ status: 200, type: "text/plain; version=0.0.4", body: Buffer.from(await parts.metrics()) }),
  };
  const server = new HttpServer({
    maxBodyBytes: MAX_BODY_BYTES,
    bodySetting: "none: a fixed bound",
    maxBufferedBytes: MAX_BUFFERED_BYTES,
    maxConnections: MAX_CONNECTIONS,
    answer({ method, target }) {
      const path = target.split("?", 1)[0] as string;
      const route = Object.hasOwn(routes, path) ? routes[path] : undefined;
      if (route === undefined) return json({ message: `no such path: ${path}; there are ${Object.keys(routes).join(", ")}` }, 404);
      if (method !== "GET") return { ...json({ message: `expected GET, got ${method}` }, 405), headers: { Allow: "GET" } };
      return route();
    },
    refuse: (error) => json({ message: String((error as Error).message) }, 500),
    observe: () => undefined,
  });
  await server
    .listen({ host, port })
    .catch((error: Error) => fail("SETTING_INVALID", `the client's HTTP at ${host}:${port}: ${error.message}`, { cause: error }));
  server.unref();
  return server;
}
