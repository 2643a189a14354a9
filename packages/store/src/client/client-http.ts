// The client's own HTTP endpoint: its version, its health (whether the master knows it), and its metrics.
import type { AddressInfo, Server, Socket } from "node:net";
import { fail } from "@svc/contract/failures.ts";
import { type Answer, createHttpServer } from "../http/server.ts";

export type ClientHttpParts = {
  readonly version: string;
  readonly displayVersion: string;
  metrics(): Promise<string>;
  isHealthy(): boolean;
};

export type ClientHttp = { readonly port: number; close(): Promise<void> };

const MAX_CONNECTIONS = 256;
const MAX_BODY_BYTES = 1024;
const json = (value: unknown, status = 200): Answer => ({ status, type: "application/json; charset=utf-8", body: Buffer.from(JSON.stringify(value)) });

/** @throws SETTING_INVALID when the port is taken. */
export async function openClientHttp(host: string, port: number, parts: ClientHttpParts): Promise<ClientHttp> {
  const routes: Record<string, () => Answer | Promise<Answer>> = {
    "/version": () => json({ version: parts.version, display_version: parts.displayVersion }),
    "/health": () => (parts.isHealthy() ? json({ status: "healthy", code: 0 }) : json({ status: "unhealthy", code: 1 }, 503)),
    "/metrics": async () => ({ status: 200, type: "text/plain; version=0.0.4", body: Buffer.from(await parts.metrics()) }),
  };
  const failed = (error: unknown): Answer => json({ message: String((error as Error).message) }, 500);
  const server = createHttpServer({
    maxBodyBytes: MAX_BODY_BYTES,
    bodySetting: "none: a fixed bound",
    maxConnections: MAX_CONNECTIONS,
    answer({ method, target }, done) {
      const path = target.split("?", 1)[0] as string;
      const route = Object.hasOwn(routes, path) ? routes[path] : undefined;
      if (route === undefined) done(json({ message: `no such path: ${path}; there are ${Object.keys(routes).join(", ")}` }, 404));
      else if (method !== "GET") done({ ...json({ message: `expected GET, got ${method}` }, 405), allow: "GET" });
      else Promise.resolve(route()).then(done, (error) => done(failed(error)));
    },
    refuse: failed,
    observe: () => undefined,
  });
  const connections = trackConnections(server);
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, resolve);
  }).catch((error: Error) => fail("SETTING_INVALID", `the client's HTTP at ${host}:${port}: ${error.message}`, { cause: error }));
  server.unref();
  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const socket of connections) socket.destroy();
      await closed;
    },
  };
}

function trackConnections(server: Server): ReadonlySet<Socket> {
  const connections = new Set<Socket>();
  server.on("connection", (socket) => {
    connections.add(socket);
    socket.once("close", () => connections.delete(socket));
  });
  return connections;
}
