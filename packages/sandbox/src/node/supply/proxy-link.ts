// Functions of the proxy that the verbs use; the proxy opens after them.

/** `open`: requests and streams under way; `begun`: how many have begun. That count restarts from 0 after a time without any. */
export type Traffic = { readonly open: number; readonly begun: number };

export type ProxyLink = {
  /** The domain that E2B clients build getHost() from: a configured one, else localhost with the node's port. */
  domain: string;
  /** Ends all connections to a sandbox; has no effect before the proxy is open. */
  drop(sandboxID: string): void;
  /** The number of requests that the sandbox has received but not begun to answer. */
  waitingFor(sandboxID: string): number;
  trafficOf(sandboxID: string): Traffic;
};
