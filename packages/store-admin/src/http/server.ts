// The admin server's listener. The contract demands one request per connection.
import type { AddressInfo, Socket } from "node:net";
import { fail } from "@svc/contract/failures.ts";
import type { ListenAddress } from "@svc/kit/listen.ts";
import { dialledAt } from "@svc/kit/listen.ts";
import type { Request } from "@svc/store/http/request.ts";
import { createHttpServer } from "@svc/store/http/server.ts";
import { type AdminParts, answerAdmin, labelOf, refuseAdmin } from "./answer.ts";

const MAX_BUFFERED_BYTES = 64 * 1024 * 1024;
const MAX_CONNECTIONS = 4096;

export type AdminServer = { readonly url: string; close(): Promise<void> };
export type ServerOptions = {
  readonly listen: ListenAddress;
  readonly maxBodyBytes: number;
  readonly parts: AdminParts;
  observe(path: string, code: string, seconds: number): void;
};

/** @throws SETTING_INVALID if it cannot listen on the address. */
export async function openAdminServer({ listen: { host, port }, maxBodyBytes, parts, observe }: ServerOptions): Promise<AdminServer> {
  const label = (request: Request | undefined) => (request === undefined ? "none" : labelOf(request.target, parts.routes));
  const http = createHttpServer({
    maxBodyBytes,
    bodySetting: "store_admin.max_body_bytes",
    maxBufferedBytes: MAX_BUFFERED_BYTES,
    maxConnections: MAX_CONNECTIONS,
    closesEach: true,
    answer: (request, done, peer) => answerAdmin(request, parts, done, peer),
    refuse: refuseAdmin,
    observe: (request, code, seconds) => observe(label(request), String(code), seconds),
  });
  const connections = new Set<Socket>();
  http.on("connection", (socket) => {
    connections.add(socket);
    socket.once("close", () => connections.delete(socket));
  });
  await new Promise<void>((resolve, reject) => {
    http.once("error", reject);
    http.listen(port, host, resolve);
  }).catch((error: Error) => fail("SETTING_INVALID", `store_admin.listen: ${host}:${port} cannot listen there: ${error.message}`, { cause: error }));
  return {
    url: dialledAt(host, (http.address() as AddressInfo).port),
    close: () => {
      const closed = new Promise<void>((resolve) => http.close(() => resolve()));
      for (const socket of connections) socket.destroySoon();
      return closed;
    },
  };
}
