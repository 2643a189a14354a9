// The nftables text of a home: the ranges that are closed to all its sandboxes, and how a refusal is answered and logged.

import type { Rate } from "@svc/kit/token-bucket.ts";
import { type Cidr, formatCidr } from "../egress/cidr.ts";
import { HTTPS_PORT } from "../intercept/messages.ts";
import type { PacketReason } from "./denial.ts";
import { gatewayOf, prefixOf, tableOf } from "./names.ts";
import { RULES_MAP, TO_INTERCEPT } from "./ruled.ts";
import { NO_DIRECT, TO_TUNNEL, TUNNEL_MAP } from "./tunnelled.ts";

//   packet from a sandbox                                    packet to a sandbox
//   ─ prerouting (raw): wrong source or IPv6 → drop          ─ from the host itself: passes
//   ─ dns: gateway:53 → the node's DNS port;                 ─ forwarded: replies by veth to slot_<index>,
//     HTTPS to hosts with rules → the node's thread for it;
//     TCP of a sandbox with an egress proxy → the same thread
//   ─ input (to the host): DNS and replies pass, else refuse   so that a policy covers both directions;
//   ─ forward: closed ranges, siblings → refuse                else refuse
//              else by veth to slot_<index>: accept or refuse
// A veth without an element in `egress` reaches nothing, so a forgotten veth is closed.
// refuse_<reason> reports the packet to the network log, then answers it.

export type HomeRules = {
  readonly token: string;
  readonly block: Cidr;
  readonly deniedCidrs: readonly Cidr[];
  readonly dnsPort: number;
  /** The port of the thread that opens TLS for hosts with rules; 0 until the first sandbox has rules. */
  readonly interceptPort: number;
  /** The port where the thread takes connections of sandboxes with an egress proxy; 0 until the first sandbox has one. */
  readonly tunnelPort: number;
  /** DNS datagrams of one sandbox; its new DNS connections have a separate rate. */
  readonly dnsRate: Rate;
  /** The nflog group that receives denied packets; undefined if nothing reads them. */
  readonly logGroup: number | undefined;
  readonly maxConnections: number;
};

/** Default bound on the outgoing connections (for UDP, flows of the last 30 s) of one sandbox. */
export const MAX_CONNECTIONS_PER_SANDBOX = 16_384;

/** Denied packets of one sandbox that are reported individually; the rest is counted. The rate is enough to read and too low to be a load. */
export const NOTED_PER_SECOND = 5;
export const NOTED_BURST = 50;
/** Bound on new TCP connections of one sandbox to its DNS. */
const DNS_CONNECTIONS = "rate over 50/second burst 100 packets";
/** The size of an IPv4 header with all options and a TCP header. */
const NOTED_BYTES = 96;
/** Counts, per interface, the packets that were not reported individually. */
export const UNNOTED_SET = "unnoted";

const baseChains = {
  prerouting: "type filter hook prerouting priority raw; policy accept;",
  dns: "type nat hook prerouting priority dstnat; policy accept;",
  input: "type filter hook input priority filter; policy accept;",
  forward: "type filter hook forward priority filter; policy accept;",
  outbound: "type nat hook postrouting priority srcnat; policy accept;",
};

/** Creates or renews the rules that all sandboxes share, in one transaction; chains and elements of live slots stay in force. */
export function homeText({ token, block, deniedCidrs, dnsPort, interceptPort, tunnelPort, dnsRate, logGroup, maxConnections }: HomeRules): string {
  const table = `inet ${tableOf(token)}`;
  const ours = `"${prefixOf(token)}*"`;
  const gateway = gatewayOf(block);
  const closed = [...deniedCidrs, block].map(formatCidr).join(", ");
  const slots = 2 ** (32 - block.prefixLength);
  const noted = (reason: PacketReason, verdict: string): string[] =>
    logGroup === undefined
      ? [verdict]
      : [
          `add @noted { iifname limit rate ${NOTED_PER_SECOND}/second burst ${NOTED_BURST} packets } log prefix "${reason}" group ${logGroup} snaplen ${NOTED_BYTES} queue-threshold 1 ${verdict}`,
          `update @${UNNOTED_SET} { iifname counter }`,
          verdict,
        ];
  // All sandboxes share the host's connection table, so none may fill it.
  const bounded = `ct state new add @connections { iifname ct count over ${maxConnections} } goto refuse_connections`;
  const rules: Record<string, string[]> = {
    // These answers make programs fail immediately: gVisor reports an unreachable port to a UDP socket, but not a prohibition.
    refuse: ["meta l4proto tcp reject with tcp reset", "meta l4proto udp reject with icmpx type port-unreachable", "reject with icmpx type admin-prohibited"],
    // A new policy cut this peer off: a reset ends its side too, and other protocols need no answer.
    refuse_reply: ["meta l4proto tcp reject with tcp reset", "drop"],
    refuse_closed_range: noted("closed_range", "goto refuse"),
    refuse_sibling: noted("sibling", "goto refuse"),
    refuse_host: noted("host", "goto refuse"),
    refuse_policy: ["ct direction reply goto refuse_reply", ...noted("policy", "goto refuse")],
    refuse_direct: ["ct direction reply goto refuse_reply", ...noted("direct", "goto refuse")],
    refuse_connections: noted("connections", "goto refuse"),
    drop_spoofed: noted("spoofed", "drop"),
    prerouting: [`iifname != ${ours} accept`, "meta nfproto != ipv4 drop", "iifname . ip saddr != @guests goto drop_spoofed"],
    dns: [
      `iifname ${ours} ip daddr ${gateway} udp dport 53 dnat ip to ${gateway}:${dnsPort}`,
      `iifname ${ours} ip daddr ${gateway} tcp dport 53 dnat ip to ${gateway}:${dnsPort}`,
      // Only the first packet of a connection passes here, and only an interface whose sandbox has rules is in the map.
      `tcp dport ${HTTPS_PORT} iifname vmap @${RULES_MAP}`,
      // The same for sandboxes with an egress proxy.
      `meta l4proto tcp iifname vmap @${TUNNEL_MAP}`,
    ],
    [TO_INTERCEPT]: interceptPort === 0 ? [] : [`meta l4proto tcp dnat ip to ${gateway}:${interceptPort}`],
    [TO_TUNNEL]:
      tunnelPort === 0
        ? []
        : [
            // These destinations are refused as ever, with their own reasons.
            "ip daddr @closed return",
            "fib daddr type local return",
            `meta l4proto tcp dnat ip to ${gateway}:${tunnelPort}`,
          ],
    [NO_DIRECT]: ["meta l4proto tcp goto refuse_direct", "accept"],
    input: [
      `iifname ${ours} goto to_host`,
      // Neighbours of the host must not reach the node's DNS by routing the gateway address through it.
      `iifname != "lo" ip daddr ${formatCidr(block)} goto refuse`,
    ],
    to_host: [
      "ct direction reply ct state established accept",
      "ct direction reply ct state related icmp type { destination-unreachable, time-exceeded, parameter-problem } accept",
      bounded,
      // The DNS thread enforces the same rate. All sandboxes share its one socket, which a flood must not fill; twice the rate passes, so that
      // the thread can report what it dropped.
      `ip daddr ${gateway} udp dport ${dnsPort} add @dns_datagrams { iifname limit rate over ${2 * dnsRate.perSecond}/second burst ${2 * dnsRate.burst} packets } drop`,
      `ip daddr ${gateway} tcp dport ${dnsPort} ct state new add @dns_connections { iifname limit ${DNS_CONNECTIONS} } goto refuse`,
      `ip daddr ${gateway} udp dport ${dnsPort} accept`,
      `ip daddr ${gateway} tcp dport ${dnsPort} accept`,
      // The thread checks the sandbox's policy by the name in the TLS handshake; it takes no connection that was not redirected.
      ...(interceptPort === 0 ? [] : [`ip daddr ${gateway} tcp dport ${interceptPort} ct status dnat ct original proto-dst ${HTTPS_PORT} accept`]),
      ...(tunnelPort === 0 ? [] : [`ip daddr ${gateway} tcp dport ${tunnelPort} ct status dnat ct original ip daddr != ${formatCidr(block)} accept`]),
      // A packet that begins no connection belongs to one of the node's that the kernel has forgotten (envd's keep-alives, for example, after
      // the connection table was emptied): a reset ends it without a log entry for a port that no program tried.
      "meta l4proto tcp tcp flags & (syn | ack) != syn goto refuse",
      "goto refuse_host",
    ],
    forward: [`iifname ${ours} jump from_sandbox`, `oifname ${ours} goto to_sandbox`],
    from_sandbox: [
      // Without a connection entry there is no NAT, and such a packet would leave with its inner address.
      "ct state { invalid, untracked } drop",
      // Where another program redirects an address, the dialled one may have been the host's own.
      "ct status dnat goto refuse_closed_range",
      `ip daddr ${formatCidr(block)} goto refuse_sibling`,
      'oifname "svc-*" goto refuse_sibling',
      "ip daddr @closed goto refuse_closed_range",
      "tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu",
      bounded,
      "iifname vmap @egress",
      "goto refuse",
    ],
    to_sandbox: [
      "tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu",
      "ct direction reply ct state related accept",
      "ct direction reply ct state established oifname vmap @egress",
      "goto refuse",
    ],
    outbound: [`ip saddr ${formatCidr(block)} oifname != "svc-*" masquerade`],
  };
  return [
    `add table ${table}`,
    `add set ${table} closed { type ipv4_addr; flags interval; auto-merge; }`,
    `flush set ${table} closed`,
    `add element ${table} closed { ${closed} }`,
    `add set ${table} guests { type ifname . ipv4_addr; }`,
    `add set ${table} connections { type ifname; size ${slots}; flags dynamic; }`,
    // A changed rate takes effect with new elements only.
    ...["dns_datagrams", "dns_connections"].flatMap((set) => [
      `add set ${table} ${set} { type ifname; size ${slots}; flags dynamic; }`,
      `flush set ${table} ${set}`,
    ]),
    `add set ${table} noted { type ifname; size ${slots}; flags dynamic; }`,
    `add set ${table} ${UNNOTED_SET} { type ifname; size ${slots}; flags dynamic; }`,
    // Counts from an earlier run were reported then, or not at all.
    `flush set ${table} ${UNNOTED_SET}`,
    `add map ${table} egress { type ifname : verdict; }`,
    `add map ${table} ${RULES_MAP} { type ifname : verdict; }`,
    `add map ${table} ${TUNNEL_MAP} { type ifname : verdict; }`,
    ...Object.keys(rules).map((chain) => {
      const hook = (baseChains as Record<string, string>)[chain];
      return `add chain ${table} ${chain}${hook === undefined ? "" : ` { ${hook} }`}`;
    }),
    ...Object.keys(rules).map((chain) => `flush chain ${table} ${chain}`),
    ...Object.entries(rules).flatMap(([chain, lines]) => lines.map((line) => `add rule ${table} ${chain} ${line}`)),
    "",
  ].join("\n");
}

export function tableRemovalText(token: string): string {
  return `add table inet ${tableOf(token)}\ndelete table inet ${tableOf(token)}\n`;
}
