// A connection that was denied, and the sentence that says why.
import type { NetworkSlot } from "./networks.ts";

/** What the firewall's rules write in front of a packet: at most 127 characters, no blanks. */
export const packetReasons = ["closed_range", "sibling", "host", "policy", "connections", "spoofed"] as const;
export type PacketReason = (typeof packetReasons)[number];

/**
 * `dns`: a name was not resolved. `dns_rate`: questions beyond the rate were dropped. `unlisted`, `unlisted_names`: more packets
 * and names were denied than are listed.
 */
export type DenialReason = PacketReason | "dns" | "dns_rate" | "unlisted" | "unlisted_names";

export type Denial = {
  readonly slot: NetworkSlot;
  /** Wall clock. */
  readonly atMs: number;
  /** tcp, udp, icmp, or the number of another protocol; any: of `unlisted`. */
  readonly protocol: string;
  /** Where the packet was going; empty for `unlisted`. */
  readonly address: string;
  readonly port?: number;
  /** The domain asked for, or the one that this address had when the sandbox last asked. */
  readonly name?: string;
  readonly reason: DenialReason;
  /** The rule that spoke, in words. */
  readonly detail: string;
  /** How many alike this entry stands for. */
  readonly repeated: number;
};

/** One line for a person: what was tried, and which rule denied it. */
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
    case "policy":
      return `blocked by policy: ${target} ${detail}${times}`;
    default:
      return `blocked: ${target} ${detail}${times}`;
  }
}
