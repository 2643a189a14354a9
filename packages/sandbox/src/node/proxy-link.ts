// What the verbs need of the proxy, which opens after them.

/** Exchanges and streams that are under way, and how many have begun in all; the count begins anew where none was for a while. */
export type Traffic = { readonly open: number; readonly begun: number };

export type ProxyLink = {
  /** What getHost() of the clients builds on: a configured domain, else localhost with the node's port. */
  domain: string;
  /** Ends all connections to a sandbox; nothing until the proxy is open. */
  drop(sandboxID: string): void;
  /** Requests that a sandbox has taken and not begun to answer. */
  waitingFor(sandboxID: string): number;
  trafficOf(sandboxID: string): Traffic;
};
