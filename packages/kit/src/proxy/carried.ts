// A client connection that comes decrypted from the listener for TLS.
import type { Duplex } from "node:stream";

/** A connection that another listener accepted and whose bytes arrive here decrypted. */
export type Carried = {
  readonly stream: Duplex;
  /** The client's address. */
  readonly peer: string;
  /** Ends the connection such that the client notices. */
  readonly reset: () => void;
  /** Says whether the client, which named one host to TLS, may name this one on the same connection. */
  readonly serves: (host: string) => boolean;
  /** Set if the client has no certificate of the deployment, which this listener expects: it gets this refusal but on open routes. */
  readonly stranger?: string;
  /** True for a connection of this process's own, which may open a raw connection to a port. */
  readonly mayTunnel?: boolean;
};
