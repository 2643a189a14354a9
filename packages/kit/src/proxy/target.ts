// A destination of requests: how it is dialled, its idle connections kept for reuse, and all open connections.
import type { Answer } from "./answer.ts";
import type { ProxyLimits } from "./limits.ts";
import type { Pace } from "./pace.ts";
import { ResponseHead } from "./response-head.ts";
import { type Trouble, Upstream, type UpstreamClient, type UpstreamOwner, type Way } from "./upstream.ts";

export interface TargetPolicy {
  /** Ways in the order in which they are tried; the next one is tried when one is refused. */
  ways(): readonly Way[];
  /** Called when `way` led to an open connection. */
  reached(way: Way): void;
  answerFor(trouble: Trouble, detail: string): Answer;
  /** Idle connections are closed after this time, which is shorter than the other side's timeout. */
  readonly idleMs: number;
  /** True if its 421 with `x-svc-reason: moved` means that it did nothing: the request is then routed again if possible. */
  readonly saysMoved: boolean;
  /** Bounds the bytes of all its responses together; absent: no bound. */
  readonly pace?: Pace | undefined;
}

/** The parts that all targets of one proxy share: limits, and a sweep over the idle connections. */
export class UpstreamPool {
  readonly limits: ProxyLimits;
  /** Response heads are parsed one at a time, so one parser serves all upstreams. */
  readonly head: ResponseHead;
  readonly #targets = new Set<Target>();
  openCount = 0;
  bytesIn = 0;

  constructor(limits: ProxyLimits) {
    this.limits = limits;
    this.head = new ResponseHead(limits.headLines);
  }

  sweep(now: number): void {
    for (const target of this.#targets) {
      target.sweep(now);
      if (target.isUnused) this.#targets.delete(target);
    }
  }

  close(): void {
    for (const target of this.#targets) target.close();
    this.#targets.clear();
  }

  opened(target: Target): void {
    this.openCount++;
    this.#targets.add(target);
  }
}

export class Target implements UpstreamOwner {
  readonly policy: TargetPolicy;
  readonly pool: UpstreamPool;
  readonly #idle: Upstream[] = [];
  readonly #open = new Set<Upstream>();

  constructor(pool: UpstreamPool, policy: TargetPolicy) {
    this.pool = pool;
    this.policy = policy;
  }

  get isUnused(): boolean {
    return this.#open.size === 0;
  }

  /** The number of connections that carry a request, a response or a tunnel. */
  get busy(): number {
    let busy = 0;
    for (const { client } of this.#open) if (client !== undefined) busy++;
    return busy;
  }

  /** The number of requests that were sent to the target and have no response yet. */
  get waiting(): number {
    let waiting = 0;
    for (const { client, isResponding } of this.#open) if (client !== undefined && !isResponding) waiting++;
    return waiting;
  }

  /** Returns the most recently used idle connection, so that the oldest ones time out. */
  takeIdle(): Upstream | undefined {
    return this.#idle.pop();
  }

  /** Dials for `client`, which gets a call of `onReady` or `onTrouble`. */
  dial(client: UpstreamClient): Upstream {
    return this.#dialWay(client, this.policy.ways(), 0);
  }

  #dialWay(client: UpstreamClient, ways: readonly Way[], index: number): Upstream {
    const way = ways[index] as Way;
    const upstream = new Upstream(this, way, client, (trouble, detail) => {
      const waiting = upstream.client;
      if (waiting === undefined) return;
      if (trouble === "refused" && index + 1 < ways.length) waiting.upstream = this.#dialWay(waiting, ways, index + 1);
      else waiting.onTrouble(trouble, detail);
    });
    this.#open.add(upstream);
    this.pool.opened(this);
    return upstream;
  }

  putIdle(upstream: Upstream): void {
    if (this.#idle.length >= this.pool.limits.idlePerTarget) {
      upstream.destroy();
      return;
    }
    this.#idle.push(upstream);
  }

  forget(upstream: Upstream): void {
    if (this.#open.delete(upstream)) this.pool.openCount--;
    const index = this.#idle.indexOf(upstream);
    if (index >= 0) this.#idle.splice(index, 1);
  }

  sweep(now: number): void {
    for (const upstream of [...this.#idle]) if (now - upstream.idleSince > this.policy.idleMs) upstream.destroy();
  }

  /** The target is silent: answers requests without a response and destroys idle connections; streams continue. */
  dropWaiting(): void {
    for (const upstream of [...this.#open]) {
      if (upstream.isResponding) continue;
      const client = upstream.client;
      upstream.destroy();
      client?.onTrouble("dropped", "");
    }
  }

  /** The target is gone: ends streams, answers waiting requests, and destroys idle connections. */
  drop(): void {
    for (const upstream of [...this.#open]) {
      const client = upstream.client;
      upstream.destroy();
      client?.onTrouble("dropped", "");
    }
  }

  close(): void {
    for (const upstream of [...this.#open]) upstream.destroy();
  }
}
