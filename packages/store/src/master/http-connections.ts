// HTTP connections that the core hands over: those with any request but GET /query_key, with the bytes received so far.
import { Socket } from "node:net";
import { fail } from "@svc/contract/failures.ts";
import { type Carried, type HttpOptions, isBelow } from "@svc/kit/http/exchange.ts";
import { HttpServer } from "@svc/kit/http/server.ts";
import { refuseHttp } from "./http.ts";
import type { NativeMaster } from "./native.ts";
import type { MasterSettings } from "./settings.ts";

const MAX_BODY_BYTES = 1 << 20;
const MAX_BUFFERED_BYTES = 64 << 20;

export type HttpConnections = {
  readonly port: number;
  adopt(descriptor: number, begun: Buffer): void;
  /** Serves a connection that came by TLS. */
  carry(socket: Socket, carried: Carried): void;
  close(): Promise<void>;
};

export type HttpConnectionOptions = Pick<HttpOptions, "answer" | "observe" | "handsOver"> & {
  readonly native: NativeMaster;
  readonly settings: MasterSettings;
  readonly isGuarded: boolean;
  /** The host of `store.listen`, or loopback. */
  readonly host: string;
};

/** @throws SETTING_INVALID where the address cannot be bound. */
export function openHttp({ native, settings, isGuarded, host, answer, observe, handsOver }: HttpConnectionOptions): HttpConnections {
  const { port } = settings.listen;
  const server = new HttpServer({
    maxBodyBytes: MAX_BODY_BYTES,
    bodySetting: "none: a fixed bound",
    maxBufferedBytes: MAX_BUFFERED_BYTES,
    maxConnections: settings.max_http_connections,
    answer,
    observe,
    handsOver,
    isOpen: (method, target) => (method === "GET" || method === "HEAD") && (isBelow(target, "/health") || isBelow(target, "/metrics")),
    refuse: refuseHttp,
  });
  let bound: number;
  try {
    // With access control only this process checks keys, so the core must not answer by itself.
    bound = native.listenHttp(host, port, !isGuarded);
  } catch (error) {
    return fail("SETTING_INVALID", `setting store.listen: ${host}:${port}: ${(error as Error).message}`, { cause: error });
  }
  return {
    port: bound,
    adopt: (descriptor, begun) => server.adopt(new Socket({ fd: descriptor, readable: true, writable: true }), begun),
    carry: (socket, carried) => server.carry(socket, carried),
    close: () => server.close(),
  };
}
