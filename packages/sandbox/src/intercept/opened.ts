// A connection whose TLS the node has opened on both sides, as the protocols above it see it.
import type { TLSSocket } from "node:tls";

export type Admitted =
  | { readonly headers: readonly (readonly [string, string])[] }
  /** The request goes nowhere; the status and the sentence are its answer. */
  | { readonly status: number; readonly refused: string };

export type Opened = {
  /** The name in the TLS handshake, which every request must name as its host. */
  readonly name: string;
  readonly upstream: TLSSocket;
  /** Checks the host of a request, and returns the headers to set. */
  admit(host: string | undefined): Promise<Admitted>;
};

export const refusedBody = (why: string): string => `svc: ${why}\n`;
