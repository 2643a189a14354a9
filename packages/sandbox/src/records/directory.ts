// What the proxy asks of the node: which sandbox an id names, where it is, what it demands of whoever comes, and to wake one that sleeps.
import type { RuntimeHandle } from "../runtime/runtime.ts";

/** What a sandbox demands of whoever reaches it, whether it runs or sleeps. */
export type Access = {
  readonly sandboxID: string;
  /** envd demands X-Access-Token. */
  readonly secure: boolean;
  /** Applications demand the traffic access token (allowPublicTraffic: false). */
  readonly trafficPrivate: boolean;
  /** Derived, 64 hex characters; compared in constant time only. */
  readonly envdAccessToken: string;
  readonly trafficAccessToken: string;
  /** network.maskRequestHost: the Host header applications see; `${PORT}` stands for the port. */
  readonly maskRequestHost: string | undefined;
};

export type ProxyEntry = Access & { readonly handle: RuntimeHandle };

export interface SandboxDirectory {
  /** Running sandboxes only: what is in neither list answers 502 "was not found". */
  find(sandboxID: string): ProxyEntry | undefined;
  /** Every running sandbox, for requests that carry a signature or a token but no id. */
  entries(): Iterable<ProxyEntry>;
  /** A sandbox that is paused, or on its way there, and that traffic may resume. */
  sleeping(sandboxID: string): Access | undefined;
  sleepers(): Iterable<Access>;
  /** A sandbox that is paused, or on its way there, and that traffic may not resume. */
  isPaused(sandboxID: string): boolean;
  /** On its way from this node to another, or from another to this one. */
  isMoving(sandboxID: string): boolean;
  /** When it is on its way no longer. */
  moveOver(sandboxID: string): Promise<void>;
  /** The node that a sandbox of this one moved to. */
  movedTo(sandboxID: string): string | undefined;
  /**
   * Resumes a sleeping sandbox; it is found as running when this returns. One attempt at a time however many ask;
   * waiters are bounded. Only after the request's credentials were found right: a stranger's request wakes nothing.
   * @throws TOO_MANY_REQUESTS, SANDBOX_NOT_FOUND (it ended meanwhile), and what a resume throws.
   */
  wake(sandboxID: string, clientAddress: string): Promise<void>;
}
