// The limits of the proxy with their defaults; none of them limits how long a body or a stream lasts.

export type ProxyLimits = {
  /** A request or response head larger than this is refused (431 towards clients, 502 for an upstream's). */
  readonly headBytes: number;
  /** Header lines in one head. */
  readonly headLines: number;
  /** Time from the first byte of a head to its last (slow-loris). */
  readonly headMs: number;
  /** Time that a client's connection may stay without a request. */
  readonly idleMs: number;
  /** Bound on client connections; a further one replaces an idle one of the peer with the most, or is answered 503. */
  readonly connections: number;
  /** The same bound for one peer address; a further connection is answered 503. */
  readonly connectionsPerPeer: number;
  /** Bound on incomplete request heads; beyond it, the oldest of the peer with the most is answered 408. */
  readonly unfinishedHeads: number;
  readonly unfinishedHeadsPerPeer: number;
  /** Time from dialling an upstream until it can take the request's first byte. */
  readonly connectMs: number;
  /** Idle connections kept per target. */
  readonly idlePerTarget: number;
  /** The body of a refused request is read and discarded up to this size, so that the connection can be kept. */
  readonly discardBytes: number;
  /** After an answer that ends a connection, further bytes are discarded for this long, since a reset might destroy the answer. */
  readonly lingerMs: number;
  /** Bound on the total wait of a request whose target must wake first, however often it is put back meanwhile. */
  readonly wakeMs: number;
  /** Requests that wait for one target to wake; a further one is answered 429. */
  readonly waitingPerTarget: number;
  /** Requests that wait for any target to wake. Each keeps up to `headBytes` and one read of its connection. */
  readonly waiting: number;
  /** How long `close` waits for requests in flight. */
  readonly drainMs: number;
};

export const proxyLimits: ProxyLimits = {
  // I24
  // More than the 64 KiB that applications may count on, since proxies on the way add lines.
  headBytes: 72 * 1024,
  headLines: 256,
  headMs: 15_000,
  idleMs: 75_000,
  connections: 8192,
  connectionsPerPeer: 4096,
  unfinishedHeads: 4096,
  unfinishedHeadsPerPeer: 2048,
  connectMs: 5_000,
  idlePerTarget: 64,
  discardBytes: 256 * 1024,
  lingerMs: 2_000,
  wakeMs: 120_000,
  waitingPerTarget: 512,
  waiting: 2048,
  drainMs: 5_000,
};
