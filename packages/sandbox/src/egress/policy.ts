// A sandbox's egress policy, parsed for the firewall and for DNS: ranges, names, and which rule decides about a destination.
import { type Cidr, contains, formatCidr, parseAddress, parseCidr } from "./cidr.ts";
import type { HostRules } from "./host-rules.ts";
import type { EgressProxy } from "./proxy.ts";
import { coversAll, mergeRanges, type Range } from "./ranges.ts";

/**
 * The destinations that a sandbox may reach. The first rule that matches decides, in this order:
 *
 *   1. closed ranges, the home's own block, the host, IPv6   refused, whatever the other rules say (I9)
 *   2. allowOut                                              allowed; wins over denyOut
 *   3. denyOut                                               refused
 *   4. allowInternet                                         anything else: allowed, or refused when false
 *
 * rules.ts has normalized the entries: blocks are aligned, names are in lower case without a trailing dot.
 */
export type EgressPolicy = {
  readonly allowInternet: boolean;
  /** CIDR blocks, addresses, domains, and `*.example.com`: every name below example.com, at any depth, but not example.com itself. */
  readonly allowOut: readonly string[];
  /** CIDR blocks and addresses. IPv6 entries are accepted without effect, since IPv6 is always closed. */
  readonly denyOut: readonly string[];
  /** Headers that the node sets in HTTPS requests to these hosts; they allow nothing. Absent in records of earlier versions. */
  readonly rules?: HostRules | undefined;
  /** TCP connections that the rules above allow leave through this SOCKS5 proxy. Absent in records of earlier versions. */
  readonly proxy?: EgressProxy | undefined;
  /** ADDRESS or ADDRESS:PORT of the DNS servers that alone answer; absent: the node's resolvers. */
  readonly dnsServers?: readonly string[] | undefined;
};

/** The default policy: everything that is not closed to every sandbox. */
export const openEgress: EgressPolicy = { allowInternet: true, allowOut: [], denyOut: [] };

/** True if the node's thread has a part in the policy: rules by host, or an egress proxy. */
export const needsThread = ({ rules, proxy }: EgressPolicy): boolean => rules !== undefined || proxy !== undefined;

export function sameEgress(a: EgressPolicy, b: EgressPolicy): boolean {
  const same = (one: readonly string[], other: readonly string[]): boolean => one.length === other.length && one.every((rule, at) => rule === other[at]);
  // A sealed password differs each time, so that a policy that repeats one is set again.
  const sameProxy = JSON.stringify(a.proxy) === JSON.stringify(b.proxy);
  const sameRules = JSON.stringify(a.rules ?? {}) === JSON.stringify(b.rules ?? {});
  return (
    a.allowInternet === b.allowInternet &&
    same(a.allowOut, b.allowOut) &&
    same(a.denyOut, b.denyOut) &&
    sameRules &&
    sameProxy &&
    same(a.dnsServers ?? [], b.dnsServers ?? [])
  );
}

export type ReadPolicy = {
  readonly policy: EgressPolicy;
  readonly allow: readonly Range[];
  readonly deny: readonly Range[];
  /** The entries of allowOut that are names. */
  readonly names: readonly string[];
  /** True if destinations without a matching rule are refused; only allowed names resolve then. */
  readonly restricted: boolean;
};

const cidrsOf = (rules: readonly string[]): Cidr[] => rules.flatMap((rule) => parseCidr(rule) ?? []);

export function readPolicy(policy: EgressPolicy): ReadPolicy {
  const deny = mergeRanges(cidrsOf(policy.denyOut));
  return {
    policy,
    allow: mergeRanges(cidrsOf(policy.allowOut)),
    deny,
    names: policy.allowOut.filter((rule) => parseCidr(rule) === undefined),
    restricted: !policy.allowInternet || coversAll(deny),
  };
}

/** Returns true if an entry of the policy covers this name, which is in lower case. */
export function nameAllowed({ names }: ReadPolicy, name: string): boolean {
  return names.some((rule) => (rule.startsWith("*.") ? name.endsWith(rule.slice(1)) && name.length > rule.length - 1 : name === rule));
}

/** Returns true if the policy lets a sandbox connect to this address under this name, wherever else the address may lead. */
export function destinationAllowed(read: ReadPolicy, name: string, address: string): boolean {
  if (nameAllowed(read, name)) return true;
  const value = parseAddress(address) ?? -1;
  const within = (ranges: readonly Range[]) => ranges.some(({ first, last }) => value >= first && value <= last);
  return within(read.allow) || (!read.restricted && !within(read.deny));
}

/** Returns why the policy refuses this address, naming the rule. */
export function addressRefusal({ policy, restricted }: ReadPolicy, address: string): string {
  const none = policy.allowOut.length > 0 ? "matches no allowOut rule and " : "";
  if (restricted && policy.allowInternet) return `${none}denyOut holds 0.0.0.0/0`;
  if (restricted) return none === "" ? "allow_internet_access is false" : `${none}allow_internet_access is false`;
  const rule = cidrsOf(policy.denyOut).find((cidr) => contains(cidr, parseAddress(address) ?? -1));
  // The policy was replaced after the packet arrived.
  return rule === undefined ? "matched a rule that was replaced meanwhile" : `matches denyOut ${formatCidr(rule)}`;
}

/** Returns why the policy does not let this name resolve; undefined if it does. A name with unusual octets comes as undefined and matches no rule. */
export function nameRefusal(read: ReadPolicy, name: string | undefined): string | undefined {
  if (!read.restricted || (name !== undefined && nameAllowed(read, name))) return undefined;
  if (read.names.length === 0 && !read.policy.allowInternet) return "this sandbox has no internet access: allow_internet_access is false";
  return `matches no allowOut rule and ${read.policy.allowInternet ? "denyOut holds 0.0.0.0/0" : "allow_internet_access is false"}`;
}
