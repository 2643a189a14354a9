// The nftables text of a slot with an egress proxy: the TCP connections that its policy allows go to the node's thread instead of outwards.
import type { ReadPolicy } from "../egress/policy.ts";
import { coversAll, formatRanges } from "../egress/ranges.ts";
import { tableOf } from "./names.ts";
import type { NetworkSlot } from "./networks.ts";

/** The map of interfaces whose sandboxes have an egress proxy, and the chain that leads to the thread. */
export const TUNNEL_MAP = "tunnelled";
export const TO_TUNNEL = "to_tunnel";
/** Where a slot's chain of its policy leads instead of accepting: TCP that was not redirected must not leave directly. */
export const NO_DIRECT = "no_direct";
const chainOf = ({ index }: NetworkSlot): string => `tunnel_${index}`;

/** Redirects what the policy allows; the rest stays as it is, so that the chain of the policy refuses and reports it as ever. */
export function tunnelText(token: string, slot: NetworkSlot, read: ReadPolicy, namesSet: string): string[] {
  const table = `inet ${tableOf(token)}`;
  return [
    `add chain ${table} ${chainOf(slot)}`,
    `flush chain ${table} ${chainOf(slot)}`,
    ...lines(read, namesSet).map((line) => `add rule ${table} ${chainOf(slot)} ${line}`),
    `add element ${table} ${TUNNEL_MAP} { "${slot.veth}" : jump ${chainOf(slot)} }`,
  ];
}

function lines({ allow, deny, names, restricted }: ReadPolicy, namesSet: string): string[] {
  if (coversAll(allow) || (!restricted && deny.length === 0)) return [`goto ${TO_TUNNEL}`];
  return [
    ...(allow.length > 0 ? [`ip daddr { ${formatRanges(allow)} } goto ${TO_TUNNEL}`] : []),
    ...(names.length > 0 ? [`ip daddr @${namesSet} goto ${TO_TUNNEL}`] : []),
    ...(restricted ? [] : [`ip daddr { ${formatRanges(deny)} } return`, `goto ${TO_TUNNEL}`]),
  ];
}

/** Removes the redirection; each part is added first, since deleting an absent one would fail the whole transaction. */
export function tunnelRemovalText(token: string, slot: NetworkSlot): string[] {
  const table = `inet ${tableOf(token)}`;
  const element = `element ${table} ${TUNNEL_MAP} { "${slot.veth}" : jump ${chainOf(slot)} }`;
  return [
    `add chain ${table} ${chainOf(slot)}`,
    `add ${element}`,
    `delete ${element}`,
    `flush chain ${table} ${chainOf(slot)}`,
    `delete chain ${table} ${chainOf(slot)}`,
  ];
}
