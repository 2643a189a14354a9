// A raw connection to a port of a sandbox, for calls of gRPC, which only the proxy's own listener for TLS requests, there or on a gateway.
import { hopNames, type RequestHead, UPGRADE } from "./request-head.ts";
import type { Drops } from "./rewrite.ts";

/** The protocol of the upgrade that requests the connection. */
export const TUNNEL = "svc-h2c";
/** Headers of the answer: which request headers the application must not see, and the host that it sees instead. */
export const DROP_HEADER = "x-svc-drop";
export const HOST_HEADER = "x-svc-host";

export function asksForTunnel(head: RequestHead): boolean {
  return head.has(UPGRADE) && head.value(UPGRADE) === TUNNEL && head.upgrades;
}

/** The answer that opens the connection; the requesting side applies to each call what is done to a request's head elsewhere. */
export function tunnelOpened(head: RequestHead, drops: Drops, host: string | undefined): string {
  const { names } = head.names;
  const dropped = names.filter((_, index) => index >= hopNames.length && drops[index + 1] === 1 && head.has(index + 1));
  const lines = `Connection: Upgrade\r\nUpgrade: ${TUNNEL}\r\n${DROP_HEADER}: ${dropped.join(",")}\r\n`;
  return `HTTP/1.1 101 Switching Protocols\r\n${lines}${host === undefined ? "" : `${HOST_HEADER}: ${host}\r\n`}\r\n`;
}
