// What the node asks of the network: a slot (netns, veth, address) per sandbox, its egress policy, and DNS.
import type { EgressPolicy } from "../egress/policy.ts";

/** One sandbox's place on the network; kept as JSON in its record. */
export type NetworkSlot = {
  /** Index within the node's address range. */
  readonly index: number;
  readonly netns: string;
  /** Absolute path of the network namespace, for `config.json` or nsenter. */
  readonly netnsPath: string;
  /** Interface on the host's side; at most 15 characters. */
  readonly veth: string;
  /** The guest's address with prefix length, and the host's side, which is its default route and its DNS server. */
  readonly guestAddress: string;
  readonly prefixLength: number;
  readonly gatewayAddress: string;
};

export interface Networks {
  /** A ready slot with `policy` in force before it returns; from a small pool of prepared ones where possible. */
  attach(policy: EgressPolicy): Promise<NetworkSlot>;
  /**
   * Replaces the policy of a live slot in one transaction: in force when it returns, for open connections too.
   * Addresses that the new policy's names resolved to before stay open. When it throws, the policy is the old one.
   */
  setPolicy(slot: NetworkSlot, policy: EgressPolicy): Promise<void>;
  /** Removes netns, veth, rules; succeeds when nothing is left to do. */
  detach(slot: NetworkSlot): Promise<void>;
  /** Takes over a slot found in a record after a restart (DNS, rules, resolved names, the index as taken). */
  adopt(slot: NetworkSlot, policy: EgressPolicy): Promise<void>;
  /** Netns names that exist for this home but were neither attached nor adopted by this process: leftovers. */
  orphans(): Promise<string[]>;
  /** Removes a leftover by its netns name. */
  removeOrphan(netns: string): Promise<void>;
  /** Puts address and routes back on the guest's eth0: gVisor takes them away at start, and a restore needs them. */
  restoreGuestSide(slot: NetworkSlot): Promise<void>;
  /** Stops DNS and the pool; slots of live sandboxes stay (they outlive the node). `everything` removes all of this home. */
  close(options?: { everything?: boolean }): Promise<void>;
}
