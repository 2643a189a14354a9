// The admin server's listener. The contract demands one request per connection.

import { fail } from "@svc/contract/failures.ts";
import type { Request } from "@svc/kit/http/exchange.ts";
import { HttpServer } from "@svc/kit/http/server.ts";
import { dialledAt, type ListenAddress } from "@svc/kit/listen.ts";
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
  const http = new HttpServer({
    maxBodyBytes,
    bodySetting: "store_admin.max_body_bytes",
    maxBufferedBytes: MAX_BUFFERED_BYTES,
    maxConnections: MAX_CONNECTIONS,
    closesEach: true,
    answer: (request) => answerAdmin(request, parts),
    refuse: (error, request) => refuseAdmin(error, parts, request),
    observe: (request, code, seconds) => observe(label(request), String(code), seconds),
  });
  await http
    .listen({ host, port })
    .catch((error: Error) => fail("SETTING_INVALID", `store_admin.listen: ${host}:${port} cannot listen there: ${error.message}`, { cause: error }));
  return { url: dialledAt(host, http.port), close: () => http.close() };
}
