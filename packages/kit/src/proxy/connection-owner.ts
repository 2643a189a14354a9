// The parts of the listener that a connection uses.
import type { Socket } from "node:net";
import type { Decision, RoutedClient } from "./decision.ts";
import type { ProxyLimits } from "./limits.ts";
import type { PeerConnection } from "./peers.ts";
import type { Pipelined } from "./pipelined.ts";
import type { RequestHead } from "./request-head.ts";
import type { SlowHeads } from "./slow-heads.ts";

export interface ConnectionOwner {
  readonly limits: ProxyLimits;
  readonly head: RequestHead;
  readonly slowHeads: SlowHeads;
  readonly pipelined: Pipelined;
  readonly observe: (kind: number, status: number, ms: number) => void;
  readonly draining: boolean;
  bytesIn: number;
  route(head: RequestHead, client: RoutedClient): Decision;
  forget(client: PeerConnection): void;
}

/** Returns a connection's remote address, with mapped IPv4 as plain IPv4, whichever address the listener is bound to. */
export function peerOf(socket: Socket): string {
  return (socket.remoteAddress ?? "unknown").replace(/^::ffff:(?=\d+\.)/, "");
}
