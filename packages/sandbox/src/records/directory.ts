// The proxy's view of the node: the sandbox of an id, its address, the credentials it requires, and a way to wake a paused one.
import type { RuntimeHandle } from "../runtime/runtime.ts";

/** The credentials that requests to a sandbox need, whether it runs or is paused. */
export type Access = {
  readonly sandboxID: string;
  /** Requests to envd need X-Access-Token. */
  readonly secure: boolean;
  /** Requests to applications need the traffic access token (allowPublicTraffic: false). */
  readonly trafficPrivate: boolean;
  /** Derived, 64 hex characters; compared in constant time only. */
  readonly envdAccessToken: string;
  readonly trafficAccessToken: string;
  /** network.maskRequestHost: the Host header that applications see; `${PORT}` stands for the port. */
  readonly maskRequestHost: string | undefined;
  /** network.httpsPorts: the ports whose servers speak TLS themselves. */
  readonly httpsPorts: readonly number[];
};

export type ProxyEntry = Access & { readonly handle: RuntimeHandle };

export interface SandboxDirectory {
  /** Finds a running sandbox. An id that is neither running nor paused is answered with 502 "was not found". */
  find(sandboxID: string): ProxyEntry | undefined;
  /** Every running sandbox, for requests that carry a signature or a token but no id. */
  entries(): Iterable<ProxyEntry>;
  /** Finds a sandbox that is paused or pausing and that traffic may resume. */
  sleeping(sandboxID: string): Access | undefined;
  sleepers(): Iterable<Access>;
  /** True for a sandbox that is paused or pausing and that traffic may not resume. */
  isPaused(sandboxID: string): boolean;
  /** True while the sandbox is moving from this node or to it. */
  isMoving(sandboxID: string): boolean;
  /** Resolves when the move of the sandbox is over. */
  moveOver(sandboxID: string): Promise<void>;
  /** Returns the node that a sandbox of this node moved to. */
  movedTo(sandboxID: string): string | undefined;
  /**
   * Resumes a paused sandbox; `find` finds it when this resolves. Concurrent calls share one attempt, and the number of waiters is bounded.
   * Called
   * only after the request's credentials were verified, so that unauthorized requests wake nothing.
   * @throws TOO_MANY_REQUESTS, SANDBOX_NOT_FOUND (it ended meanwhile), and the failures of a resume.
   */
  wake(sandboxID: string, clientAddress: string): Promise<void>;
}
