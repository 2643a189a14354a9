// Connects the thread for rules by host with the networks: sandboxes by their address, and what the node inserts into their requests.
import type { Log } from "@svc/kit/log.ts";
import { type HeaderTemplate, headersFor } from "../egress/host-rules.ts";
import type { Certificate, Headers, Note } from "../intercept/messages.ts";
import { type Intercept, openIntercept, type Ports } from "../intercept/thread.ts";
import type { Fence } from "./fence.ts";
import type { HostRoutes } from "./host-routes.ts";
import type { NetworkSlot } from "./networks.ts";
import type { Tunnels } from "./tunnels.ts";

/** The node supplies this for hosts with rules; without it policies with rules are set, and nothing applies them. */
export type RulesSupply = {
  /** Authorities in PEM, in addition to the host's store, by which certificates of hosts are checked. */
  readonly authorities: string;
  /** Issues a certificate that sandboxes trust. */
  readonly certificate: (name: string) => Certificate;
  /** Fills in the templates for the sandbox on this slot. @throws with the reason why a value is missing. */
  /** Decrypts the password of an egress proxy; undefined if it was encrypted under another key. */
  readonly proxyPassword: (sealed: string) => string | undefined;
  readonly headers: (slot: NetworkSlot, templates: readonly HeaderTemplate[]) => Promise<Headers>;
};

export type InterceptParts = {
  readonly supply: RulesSupply;
  readonly address: string;
  readonly ports: Ports;
  readonly fenceAt: (address: string) => Fence | undefined;
  readonly route: HostRoutes;
  readonly tunnels: Tunnels;
  readonly onPorts: (ports: Ports) => Promise<void>;
  readonly onNote: (fence: Fence, note: Note) => void;
  readonly log: Log;
};

export function interceptFor({ supply, address, ports, fenceAt, route, tunnels, onPorts, onNote, log }: InterceptParts): Intercept {
  return openIntercept({
    address,
    ...ports,
    authorities: supply.authorities,
    log,
    answer: {
      route: ({ sandbox, name }) => route(sandbox, name),
      tunnel: (key) => tunnels.decide(key),
      certificate: async ({ name }) => supply.certificate(name),
      async headers({ sandbox, name }) {
        const fence = fenceAt(sandbox);
        if (fence === undefined) throw new Error("the sandbox is gone");
        return supply.headers(fence.slot, headersFor(fence.policy.rules, name) ?? []);
      },
    },
    onNote(note) {
      const fence = fenceAt(note.sandbox);
      if (fence !== undefined) onNote(fence, note);
    },
    onPorts,
  });
}
