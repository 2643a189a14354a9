// The bounds of the proxy, each with its default; none of them limits how long a body or a stream lasts.

export type ProxyLimits = {
  /** A request or response head larger than this is refused (431 towards clients, 502 for an upstream's). */
  readonly headBytes: number;
  /** Header lines in one head. */
  readonly headLines: number;
  /** From the first byte of a head to its last (slow-loris). */
  readonly headMs: number;
  /** A client's connection that carries no request. */
  readonly idleMs: number;
  /** Client connections at once; the next one takes the place of an idle one of the peer that has most, or is answered 503. */
  readonly connections: number;
  /** Of one peer address; the next one is answered 503. */
  readonly connectionsPerPeer: number;
  /** Request heads of which only a part has come; the oldest of the peer that has most is answered 408. */
  readonly unfinishedHeads: number;
  readonly unfinishedHeadsPerPeer: number;
  /** From dialling an upstream to its first usable byte position. */
  readonly connectMs: number;
  /** Idle connections kept per target. */
  readonly idlePerTarget: number;
  /** A refused request's body is read and thrown away up to this size, so that the connection can be kept. */
  readonly discardBytes: number;
  /** After an answer that ends a connection, bytes still arriving are thrown away for this long, lest a reset destroy the answer. */
  readonly lingerMs: number;
  /** A request whose target must wake first waits for no longer than this, however often it is put back meanwhile. */
  readonly wakeMs: number;
  /** Requests that wait for one target to wake; the next one is answered 429. */
  readonly waitingPerTarget: number;
  /** Requests that wait for any target to wake. Each holds up to `headBytes` and one read of its connection. */
  readonly waiting: number;
  /** How long `close` waits for requests in flight. */
  readonly drainMs: number;
};

export const proxyLimits: ProxyLimits = {
  // I24
  headBytes: 32 * 1024,
  headLines: 128,
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
