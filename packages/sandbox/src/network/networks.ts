// The network as the node uses it: a slot (netns, veth, address) per sandbox, its egress policy, and DNS.
import type { EgressPolicy } from "../egress/policy.ts";
import type { EgressProxy } from "../egress/proxy.ts";

/** One sandbox's network; kept as JSON in its record. */
export type NetworkSlot = {
  /** Index within the node's address range. */
  readonly index: number;
  readonly netns: string;
  /** Absolute path of the network namespace, for `config.json` or nsenter. */
  readonly netnsPath: string;
  /** Interface on the host's side; the maximum is 15 characters. */
  readonly veth: string;
  /** The guest's address with its prefix length, and the host's side, which is the guest's default route and DNS server. */
  readonly guestAddress: string;
  readonly prefixLength: number;
  readonly gatewayAddress: string;
};

export interface Networks {
  /** Returns a slot with `policy` in force, from a small pool of prepared slots if possible. */
  attach(policy: EgressPolicy): Promise<NetworkSlot>;
  /**
   * Replaces the policy of a live slot in one transaction: it is in force on return, for open connections too. Addresses to which the new
   * policy's names resolved before stay open. If it throws, the old policy stays in force.
   */
  setPolicy(slot: NetworkSlot, policy: EgressPolicy): Promise<void>;
  /** Removes netns, veth and rules; succeeds if there is nothing to remove. */
  detach(slot: NetworkSlot): Promise<void>;
  /** Takes over a slot found in a record after a restart: its DNS, rules, resolved names and index. */
  adopt(slot: NetworkSlot, policy: EgressPolicy): Promise<void>;
  /** Returns netns names of this home that this process neither attached nor adopted. */
  orphans(): Promise<string[]>;
  /** Removes an orphan by its netns name. */
  removeOrphan(netns: string): Promise<void>;
  /** Restores address and routes on the guest's eth0: gVisor removes them at start, and a restore needs them. */
  restoreGuestSide(slot: NetworkSlot): Promise<void>;
  /** Checks an egress proxy before a sandbox gets it. @throws INVALID_REQUEST if its name does not resolve or leads to a closed range, HOST_UNSUITABLE. */
  admitProxy(proxy: EgressProxy): Promise<void>;
  /** Values that rules by host insert have changed; the next request reads them again. */
  valuesChanged(): void;
  /** Stops DNS and the pool; slots of live sandboxes outlive the node. `everything` removes all networks of this home. */
  close(options?: { everything?: boolean }): Promise<void>;
}
