// The certificates that a listener for TLS serves: those of a public server, or those of a deployment's own traffic.
import type { TLSSocket } from "node:tls";

export type ServedPair = {
  readonly cert: string;
  readonly key: string;
  /** The authorities of clients; absent: clients need no certificate. */
  readonly ca?: string;
};

export interface ServedCertificates {
  readonly pair: ServedPair;
  /** Calls `listener` whenever another pair is to be served. */
  onChange(listener: (pair: ServedPair) => void): void;
  /** Says whether a client may name this host on a connection that it opened for another. */
  covers(host: string): boolean;
  /** Returns the reason why this connection's client may not send requests but to the open routes; undefined if it may. */
  strangerAt?(socket: TLSSocket): string | undefined;
  close(): void;
}
