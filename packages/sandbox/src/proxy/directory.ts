// What the proxy asks of the node: which sandbox an id names, where it is, and what its door demands.
import type { RuntimeHandle } from "../runtime/runtime.ts";

export type ProxyEntry = {
  readonly sandboxID: string;
  readonly handle: RuntimeHandle;
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

export interface SandboxDirectory {
  /** Running sandboxes only: what is absent here answers 502 "was not found". */
  find(sandboxID: string): ProxyEntry | undefined;
  /** Every running sandbox, for requests that carry a signature or a token but no id. */
  entries(): Iterable<ProxyEntry>;
}
