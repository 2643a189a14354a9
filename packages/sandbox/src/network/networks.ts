// What the node asks of the network: a slot (netns, veth, address) per sandbox, its egress policy, and DNS.

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

/**
 * What a sandbox may reach, in this order; the first that speaks decides:
 *
 *   1. closed ranges, the home's own block, the host, IPv6   refused, whatever else is said (I9)
 *   2. allowOut                                              allowed; wins over denyOut
 *   3. denyOut                                               refused
 *   4. allowInternet                                         what matched nothing: allowed, or refused when false
 *
 * Entries are as node/egress.ts leaves them: blocks aligned, names in lower case without a trailing dot.
 */
export type EgressPolicy = {
  readonly allowInternet: boolean;
  /** CIDR blocks, addresses, domains, and `*.example.com`: every name below example.com, at any depth, but not itself. */
  readonly allowOut: readonly string[];
  /** CIDR blocks and addresses. IPv6 may be named here and changes nothing. */
  readonly denyOut: readonly string[];
};

/** The usual policy: all but what is closed to every sandbox. */
export const openEgress: EgressPolicy = { allowInternet: true, allowOut: [], denyOut: [] };

export function sameEgress(a: EgressPolicy, b: EgressPolicy): boolean {
  const same = (one: readonly string[], other: readonly string[]): boolean => one.length === other.length && one.every((rule, at) => rule === other[at]);
  return a.allowInternet === b.allowInternet && same(a.allowOut, b.allowOut) && same(a.denyOut, b.denyOut);
}

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
