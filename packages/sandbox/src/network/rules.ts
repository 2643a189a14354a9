// The nftables text of a home: what is closed for all its sandboxes, and the chain of each one.

import { type Cidr, formatCidr } from "./cidr.ts";
import { gatewayOf, prefixOf, tableOf } from "./names.ts";
import type { EgressPolicy, NetworkSlot } from "./networks.ts";

//   packet from a sandbox                                    packet to a sandbox
//   ─ prerouting (raw): wrong source or IPv6 → drop          ─ from the host itself: passes
//   ─ dns: gateway:53 → the node's DNS port                  ─ forwarded: replies pass, else refuse
//   ─ input (to the host): DNS and replies pass, else refuse
//   ─ forward: closed ranges, siblings → refuse
//              else by veth to slot_<index>: accept, or falls back → refuse
// A veth without an element in `egress` reaches nothing: what is forgotten is closed.

export type HomeRules = {
  readonly token: string;
  readonly block: Cidr;
  readonly deniedCidrs: readonly Cidr[];
  readonly dnsPort: number;
};

/** Open connections (of UDP: flows of the last 30 s) that one sandbox may have outward. */
export const MAX_CONNECTIONS_PER_SANDBOX = 16_384;

const baseChains = {
  prerouting: "type filter hook prerouting priority raw; policy accept;",
  dns: "type nat hook prerouting priority dstnat; policy accept;",
  input: "type filter hook input priority filter; policy accept;",
  forward: "type filter hook forward priority filter; policy accept;",
  outbound: "type nat hook postrouting priority srcnat; policy accept;",
};

/** Creates or renews what all sandboxes share, in one transaction; chains and elements of live slots stay in force. */
export function homeText({ token, block, deniedCidrs, dnsPort }: HomeRules): string {
  const table = `inet ${tableOf(token)}`;
  const ours = `"${prefixOf(token)}*"`;
  const gateway = gatewayOf(block);
  const closed = [...deniedCidrs, block].map(formatCidr).join(", ");
  // The host's table of connections is shared by all: none may fill it.
  const bounded = `ct state new add @connections { iifname ct count over ${MAX_CONNECTIONS_PER_SANDBOX} } goto refuse`;
  const rules: Record<string, string[]> = {
    refuse: ["meta l4proto tcp reject with tcp reset", "reject with icmpx type admin-prohibited"],
    prerouting: [`iifname != ${ours} accept`, "meta nfproto != ipv4 drop", "iifname . ip saddr != @guests drop"],
    dns: [
      `iifname ${ours} ip daddr ${gateway} udp dport 53 dnat ip to ${gateway}:${dnsPort}`,
      `iifname ${ours} ip daddr ${gateway} tcp dport 53 dnat ip to ${gateway}:${dnsPort}`,
    ],
    input: [
      `iifname ${ours} goto to_host`,
      // Neighbours of the host must not reach the node's DNS by routing the gateway address through it.
      `iifname != "lo" ip daddr ${formatCidr(block)} goto refuse`,
    ],
    to_host: [
      "ct direction reply ct state established accept",
      "ct direction reply ct state related icmp type { destination-unreachable, time-exceeded, parameter-problem } accept",
      bounded,
      `ip daddr ${gateway} udp dport ${dnsPort} accept`,
      `ip daddr ${gateway} tcp dport ${dnsPort} accept`,
      "goto refuse",
    ],
    forward: [`iifname ${ours} jump from_sandbox`, `oifname ${ours} goto to_sandbox`],
    from_sandbox: [
      // Without a connection entry there is no NAT: such a packet would leave with its inner address.
      "ct state invalid drop",
      // Where another program redirects an address, the one dialled could have been the host's own.
      "ct status dnat goto refuse",
      'oifname "svc-*" goto refuse',
      "ip daddr @closed goto refuse",
      "tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu",
      bounded,
      "iifname vmap @egress",
      "goto refuse",
    ],
    to_sandbox: ["tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu", "ct direction reply ct state established,related accept", "goto refuse"],
    outbound: [`ip saddr ${formatCidr(block)} oifname != "svc-*" masquerade`],
  };
  return [
    `add table ${table}`,
    `add set ${table} closed { type ipv4_addr; flags interval; auto-merge; }`,
    `flush set ${table} closed`,
    `add element ${table} closed { ${closed} }`,
    `add set ${table} guests { type ifname . ipv4_addr; }`,
    `add set ${table} connections { type ifname; size ${2 ** (32 - block.prefixLength)}; flags dynamic; }`,
    `add map ${table} egress { type ifname : verdict; }`,
    ...Object.keys(rules).map((chain) => {
      const hook = (baseChains as Record<string, string>)[chain];
      return `add chain ${table} ${chain}${hook === undefined ? "" : ` { ${hook} }`}`;
    }),
    ...Object.keys(rules).map((chain) => `flush chain ${table} ${chain}`),
    ...Object.entries(rules).flatMap(([chain, lines]) => lines.map((line) => `add rule ${table} ${chain} ${line}`)),
    "",
  ].join("\n");
}

/** Puts a slot under `policy`, whether it had rules before or not. */
export function slotText(token: string, slot: NetworkSlot, policy: EgressPolicy): string {
  const table = `inet ${tableOf(token)}`;
  return [
    `add chain ${table} slot_${slot.index}`,
    `flush chain ${table} slot_${slot.index}`,
    `add rule ${table} slot_${slot.index} ${policy.allowInternet ? "accept" : "goto refuse"}`,
    ...elements(table, slot).map((element) => `add element ${element}`),
    "",
  ].join("\n");
}

/** Removes a slot's rules; each is added first, since deleting what is absent would fail the whole transaction. */
export function slotRemovalText(token: string, slot: NetworkSlot): string {
  const table = `inet ${tableOf(token)}`;
  return [
    `add chain ${table} slot_${slot.index}`,
    `flush chain ${table} slot_${slot.index}`,
    ...elements(table, slot).flatMap((element) => [`add element ${element}`, `delete element ${element}`]),
    `delete chain ${table} slot_${slot.index}`,
    "",
  ].join("\n");
}

export function tableRemovalText(token: string): string {
  return `add table inet ${tableOf(token)}\ndelete table inet ${tableOf(token)}\n`;
}

function elements(table: string, { veth, guestAddress, index }: NetworkSlot): string[] {
  return [`${table} guests { "${veth}" . ${guestAddress} }`, `${table} egress { "${veth}" : jump slot_${index} }`];
}
