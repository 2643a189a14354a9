// What a sandbox may reach, and the policy read for the firewall and for DNS: ranges, names, and which rule decides about a destination.
import { type Cidr, contains, formatCidr, parseAddress, parseCidr } from "./cidr.ts";
import { coversAll, mergeRanges, type Range } from "./ranges.ts";

/**
 * What a sandbox may reach, in this order; the first that speaks decides:
 *
 *   1. closed ranges, the home's own block, the host, IPv6   refused, whatever else is said (I9)
 *   2. allowOut                                              allowed; wins over denyOut
 *   3. denyOut                                               refused
 *   4. allowInternet                                         what matched nothing: allowed, or refused when false
 *
 * Entries are as rules.ts leaves them: blocks aligned, names in lower case without a trailing dot.
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

export type ReadPolicy = {
  readonly policy: EgressPolicy;
  readonly allow: readonly Range[];
  readonly deny: readonly Range[];
  /** Entries of allowOut that are names. */
  readonly names: readonly string[];
  /** What matches no rule is refused; then only allowed names resolve. */
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

/** Whether a name of the policy covers this one, which is in lower case. */
export function nameAllowed({ names }: ReadPolicy, name: string): boolean {
  return names.some((rule) => (rule.startsWith("*.") ? name.endsWith(rule.slice(1)) && name.length > rule.length - 1 : name === rule));
}

/** Why the policy refuses this address, in words that name the rule. */
export function addressRefusal({ policy, restricted }: ReadPolicy, address: string): string {
  const none = policy.allowOut.length > 0 ? "matches no allowOut rule and " : "";
  if (restricted && policy.allowInternet) return `${none}denyOut holds 0.0.0.0/0`;
  if (restricted) return none === "" ? "allow_internet_access is false" : `${none}allow_internet_access is false`;
  const rule = cidrsOf(policy.denyOut).find((cidr) => contains(cidr, parseAddress(address) ?? -1));
  // None: the policy was another one when the packet came.
  return rule === undefined ? "matched a rule that was replaced meanwhile" : `matches denyOut ${formatCidr(rule)}`;
}

/** Why the policy lets this name not resolve; undefined when it does. A name that is not plain text is none of its own. */
export function nameRefusal(read: ReadPolicy, name: string | undefined): string | undefined {
  if (!read.restricted || (name !== undefined && nameAllowed(read, name))) return undefined;
  if (read.names.length === 0 && !read.policy.allowInternet) return "this sandbox has no internet access: allow_internet_access is false";
  return `matches no allowOut rule and ${read.policy.allowInternet ? "denyOut holds 0.0.0.0/0" : "allow_internet_access is false"}`;
}
