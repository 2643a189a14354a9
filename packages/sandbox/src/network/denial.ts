// A denied connection, and a sentence with the reason.
import type { NetworkSlot } from "./networks.ts";

/** The prefixes that the firewall's rules write before a packet: the maximum is 127 characters, without spaces. */
export const packetReasons = ["closed_range", "sibling", "host", "policy", "direct", "connections", "spoofed"] as const;
export type PacketReason = (typeof packetReasons)[number];

/**
 * `rules`: an HTTPS connection to a host with rules failed. `tunnel`: a connection through the egress proxy failed. `dns`: a name was not resolved. `dns_rate`: questions beyond the rate were dropped. `unlisted`, `unlisted_names`: the rest of the denied
 * packets and names, beyond the number that is listed.
 */
export type DenialReason = PacketReason | "rules" | "tunnel" | "dns" | "dns_rate" | "unlisted" | "unlisted_names";

export type Denial = {
  readonly slot: NetworkSlot;
  /** Wall clock. */
  readonly atMs: number;
  /** tcp, udp, icmp, or the number of another protocol; `any` for `unlisted`. */
  readonly protocol: string;
  /** The packet's destination; empty for `unlisted`. */
  readonly address: string;
  readonly port?: number;
  /** The requested domain, or the name that resolved to this address most recently. */
  readonly name?: string;
  readonly reason: DenialReason;
  /** A description of the rule that denied it. */
  readonly detail: string;
  /** The number of equal denials that this entry represents. */
  readonly repeated: number;
};

/** Returns one line for a person: the attempt, and the rule that denied it. */
export function denialText({ protocol, address, port, name, reason, detail, repeated }: Denial): string {
  const target = `${protocol} ${address}${port === undefined ? "" : `:${port}`}${name === undefined ? "" : ` (${name})`}`;
  const times = repeated > 1 ? ` (${repeated} times)` : "";
  switch (reason) {
    case "unlisted":
      return `${repeated} more denied packets are not listed individually: ${detail}`;
    case "unlisted_names":
      return `${repeated} more refused names are not listed individually: ${detail}`;
    case "dns":
      return `blocked by policy: ${name === undefined ? "what is not a host name" : `the name ${name}`} is not resolved: ${detail}${times}`;
    case "dns_rate":
      return `blocked: DNS questions: ${detail}${times}`;
    case "rules":
      return `blocked: https ${name ?? address} ${detail}${times}`;
    case "policy":
      return `blocked by policy: ${target} ${detail}${times}`;
    default:
      return `blocked: ${target} ${detail}${times}`;
  }
}
