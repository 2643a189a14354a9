// Connects the two ends of a TLS connection that this process opens or accepts with a port or a client of its own machine.
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { TLSSocket } from "node:tls";
import type { Dial } from "../proxy/wire.ts";
import { isLoopback } from "./loopback.ts";

const LOOPBACK = "127.0.0.1";
/** Connections that arrived by TLS come from here, so that rules for 127.0.0.1 do not apply to them. */
const FROM = "127.0.0.2";
/** A port that nobody connects to is closed after this long. */
const UNUSED_MS = 10_000;

/** Passes the bytes of both directions on; the end of one connection ends the other. */
export function splice(one: Socket, other: Socket): void {
  for (const [from, to] of [
    [one, other],
    [other, one],
  ] as const) {
    from.on("error", () => {});
    from.pipe(to);
    from.once("close", () => to.destroySoon());
  }
}

/** Connects an accepted connection to a port of this machine. */
export function spliceTo(socket: Socket, { host, port }: { readonly host: string; readonly port: number }): void {
  splice(socket, connect({ host, port, noDelay: true, ...(isLoopback(host) && !host.includes(":") ? { localAddress: FROM } : {}) }));
}

/**
 * Opens a port of loopback for one connection, which `dial` reaches by TLS; for clients that speak no TLS themselves. A failure of that
 * connection is given to `onFailure`, and the client sees its end.
 */
export async function openTunnel(dial: Dial, onFailure: (error: Error) => void): Promise<{ readonly host: string; readonly port: number }> {
  const server = createServer({ noDelay: true, pauseOnConnect: true }, (socket) => {
    server.close();
    clearTimeout(unused);
    const far = typeof dial === "function" ? dial({ noDelay: true }) : connect({ ...dial, noDelay: true });
    far.once("error", (error) => {
      onFailure(error);
      socket.destroy();
    });
    socket.on("error", () => {});
    socket.once("close", () => far.destroy());
    far.once(far instanceof TLSSocket ? "secureConnect" : "connect", () => splice(socket, far));
  });
  const unused = setTimeout(() => server.close(), UNUSED_MS).unref();
  server.maxConnections = 1;
  server.listen({ host: LOOPBACK, port: 0 });
  await once(server, "listening");
  return { host: LOOPBACK, port: (server.address() as AddressInfo).port };
}
