// Parses clients' egress rules: every entry is validated and normalized, or refused with its position and the reason.
import { isIPv4, isIPv6 } from "node:net";
import { domainToASCII } from "node:url";
import { fail } from "@svc/contract/failures.ts";
import type { EgressProxyInput, HostRuleInput } from "@svc/contract/network.ts";
import { formatCidr, parseAddress, parseCidr, sizeOf } from "./cidr.ts";
import { dnsServersOf } from "./dns-servers.ts";
import { hostRulesOf } from "./host-rules.ts";
import { type EgressPolicy, readPolicy } from "./policy.ts";
import { egressProxyOf } from "./proxy.ts";

export type EgressInput = {
  readonly allowOut?: readonly string[] | null | undefined;
  readonly denyOut?: readonly string[] | null | undefined;
  readonly allow_internet_access?: boolean | null | undefined;
  readonly rules?: Readonly<Record<string, readonly HostRuleInput[]>> | null | undefined;
  readonly egressProxy?: EgressProxyInput | null | undefined;
  readonly dnsServers?: readonly string[] | null | undefined;
};

const LABEL = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;
const MAX_NAME_LENGTH = 253;

type Refuse = (why: string) => never;

/** A policy needs more than its input: the names of the sandbox's identity tokens, and how the password of an egress proxy is encrypted. */
export type EgressMeans = { readonly tokens: readonly string[]; readonly seal: (password: string) => string };

/** Absent members mean no rule, and internet access. @throws INVALID_REQUEST with the member and its index. */
export function egressOf(
  { allowOut, denyOut, allow_internet_access, rules, egressProxy, dnsServers }: EgressInput,
  { tokens, seal }: EgressMeans,
): EgressPolicy {
  const proxy = egressProxyOf(egressProxy, seal);
  const hostRules = hostRulesOf(rules, (host) => ruleHost(host, refuser("rules", host)), tokens);
  const policy: EgressPolicy = {
    ...(hostRules === undefined ? {} : { rules: hostRules }),
    ...(proxy === undefined ? {} : { proxy }),
    allowInternet: allow_internet_access ?? true,
    allowOut: (allowOut ?? []).map((rule, at) => allowRule(rule, refuser(`allowOut[${at}]`, rule))),
    denyOut: (denyOut ?? []).map((rule, at) => denyRule(rule, refuser(`denyOut[${at}]`, rule))),
  };
  const read = readPolicy(policy);
  const { names, restricted } = read;
  const [name] = names;
  if (name !== undefined && !restricted) {
    // Otherwise every other destination would be open as well, and the rule would have no effect.
    const at = policy.allowOut.indexOf(name);
    refuser(`allowOut[${at}]`, name)("a domain needs denyOut to hold 0.0.0.0/0, or allow_internet_access to be false: without it all else is allowed anyway");
  }
  const servers = dnsServersOf(dnsServers, read);
  return servers === undefined ? policy : { ...policy, dnsServers: servers };
}

const refuser =
  (position: string, rule: string): Refuse =>
  (why) =>
    fail("INVALID_REQUEST", `network.${position}: "${rule}": ${why}`);

function allowRule(rule: string, refuse: Refuse): string {
  if (isIPv6(bare(rule))) refuse("IPv6 is closed to sandboxes, and no rule opens it; name IPv4 blocks, addresses or domains");
  return numeric(rule) ? block(rule, refuse) : domain(rule, refuse);
}

function ruleHost(host: string, refuse: Refuse): string {
  if (host === "*") refuse("'*' alone is not a domain; write *.example.com for every name below example.com");
  if (isIPv6(bare(host)) || numeric(host)) refuse("rules apply to hosts by name, not to addresses: write example.com or *.example.com");
  return domain(host, refuse);
}

function denyRule(rule: string, refuse: Refuse): string {
  // IPv6 is always closed, so denying it is redundant but not wrong.
  if (isIPv6(bare(rule))) return ipv6(rule, refuse);
  return numeric(rule)
    ? block(rule, refuse)
    : refuse("denyOut takes CIDR blocks and addresses; only allowOut takes domains (deny 0.0.0.0/0 and allow the domains)");
}

/** Returns the rule without prefix length, brackets and port. */
const bare = (rule: string): string => rule.replace(/\/\d*$/, "").replace(/^\[|\](:\d+)?$/g, "");

/** True if the rule is meant as an IPv4 address: its last label is a number, as in all notations of addresses and in no domain. */
const numeric = (rule: string): boolean => /(^|\.)(0x[0-9a-f]*|[0-9]+)\.?$/i.test(rule.split("/")[0] ?? "");

/** Bits beyond the prefix are cleared, as address libraries do: 1.2.3.4/24 is 1.2.3.0/24. */
function block(rule: string, refuse: Refuse): string {
  const [address = "", length, ...more] = rule.split("/");
  const value = parseAddress(address);
  if (value === undefined || more.length > 0) return refuse("is not an IPv4 address or block; write it as 1.2.3.4 or 1.2.3.0/24");
  if (length === undefined) return address;
  const prefixLength = /^\d{1,2}$/.test(length) ? Number(length) : 33;
  if (prefixLength > 32) return refuse("the part behind the slash is the prefix length, 0 to 32");
  return formatCidr({ base: value - (value % sizeOf({ base: 0, prefixLength })), prefixLength });
}

function ipv6(rule: string, refuse: Refuse): string {
  const [address = "", length = "128", ...more] = rule.split("/");
  const right = isIPv6(address) && !address.includes("%") && more.length === 0 && /^\d{1,3}$/.test(length) && Number(length) <= 128;
  return right ? rule.toLowerCase() : refuse("is not an IPv6 address or block");
}

function domain(rule: string, refuse: Refuse): string {
  const wildcard = rule.startsWith("*.");
  const written = rule.slice(wildcard ? 2 : 0).replace(/\.$/, "");
  if (rule === "*") return refuse("to allow everything write 0.0.0.0/0, or leave the rules out");
  if (written.includes("*")) return refuse("a wildcard is `*.` at the beginning and stands for all names below: *.example.com");
  const ascii = /^[\x21-\x7e]*$/.test(written) ? written.toLowerCase() : domainToASCII(written);
  const plain = ascii.length <= MAX_NAME_LENGTH && ascii.split(".").every((label) => LABEL.test(label));
  if (!plain || isIPv4(ascii) || parseCidr(ascii) !== undefined) {
    return refuse("is not a CIDR block, address or domain; write it as 1.2.3.0/24, 1.2.3.4, example.com or *.example.com, without scheme, port or path");
  }
  return wildcard ? `*.${ascii}` : ascii;
}
