// The nftables text of one slot: a chain with its policy, and the sets of addresses that its names opened.

import type { ReadPolicy } from "../egress/policy.ts";
import { coversAll, formatRanges } from "../egress/ranges.ts";
import { tableOf } from "./names.ts";
import type { NetworkSlot } from "./networks.ts";
import { rulesRemovalText } from "./ruled.ts";
import { NO_DIRECT, tunnelRemovalText, tunnelText } from "./tunnelled.ts";

// Both directions of a connection pass the chain, and in both `ct original ip daddr` is the address that the sandbox dialled:
// a destination that a new policy refuses receives and sends nothing more, even on open connections.
//
//   names_<index>  addresses of allowed names, for as long as the answer said      opens new connections
//   live_<index>   of those, the ones with traffic in the last hour                keeps established ones open
const LIVE_SECONDS = 3600;
/** More than a fence remembers, so that no answer finds the set full. */
const SET_SIZE = 4096;
/** The kernel's bound on an element's comment. */
const MAX_COMMENT_LENGTH = 120;

export const namesSet = ({ index }: NetworkSlot): string => `names_${index}`;
export const liveSet = ({ index }: NetworkSlot): string => `live_${index}`;
const sets = (slot: NetworkSlot): string[] => [namesSet(slot), liveSet(slot)];
const addSet = (table: string, set: string): string => `add set ${table} ${set} { type ipv4_addr; size ${SET_SIZE}; flags dynamic,timeout; }`;

/**
 * Applies a policy to a slot, whether or not it had rules before. Addresses in its sets stay, unless no name needs them. `hadProxy`: the policy
 * before sent its connections through an egress proxy.
 */
export function slotText(token: string, slot: NetworkSlot, read: ReadPolicy, hadProxy: boolean): string {
  const table = `inet ${tableOf(token)}`;
  const chain = `${table} slot_${slot.index}`;
  const named = sets(slot).map((set) => addSet(table, set));
  return [
    `add chain ${chain}`,
    ...named,
    `flush chain ${chain}`,
    // A set that a chain uses cannot be deleted, so the old redirection goes first.
    ...(hadProxy ? tunnelRemovalText(token, slot) : []),
    ...(read.names.length > 0 ? [] : sets(slot).map((set) => `delete set ${table} ${set}`)),
    ...lines(slot, read).map((line) => `add rule ${chain} ${line}`),
    ...elements(table, slot).map((element) => `add element ${element}`),
    ...(read.policy.proxy === undefined ? [] : tunnelText(token, slot, read, namesSet(slot))),
    "",
  ].join("\n");
}

function lines(slot: NetworkSlot, { policy, allow, deny, names, restricted }: ReadPolicy): string[] {
  const accept = policy.proxy === undefined ? "accept" : `goto ${NO_DIRECT}`;
  if (coversAll(allow) || (!restricted && deny.length === 0)) return [accept];
  const dialled = "ct original ip daddr";
  const [named, live] = [namesSet(slot), liveSet(slot)];
  const used = `update @${live} { ${dialled} timeout ${LIVE_SECONDS}s }`;
  return [
    ...(allow.length > 0 ? [`${dialled} { ${formatRanges(allow)} } ${accept}`] : []),
    ...(names.length > 0
      ? [
          `ct state established ${dialled} @${live} ${used} ${accept}`,
          // Two rules are needed, since a full set must not refuse allowed traffic.
          `${dialled} @${named} ${used}`,
          `${dialled} @${named} ${accept}`,
        ]
      : []),
    ...(restricted ? ["goto refuse_policy"] : [`${dialled} { ${formatRanges(deny)} } goto refuse_policy`, accept]),
  ];
}

/** Removes a slot's rules; each is added first, since deleting an absent one would fail the whole transaction. */
export function slotRemovalText(token: string, slot: NetworkSlot): string {
  const table = `inet ${tableOf(token)}`;
  return [
    `add chain ${table} slot_${slot.index}`,
    `flush chain ${table} slot_${slot.index}`,
    ...tunnelRemovalText(token, slot),
    ...sets(slot).flatMap((set) => [addSet(table, set), `delete set ${table} ${set}`]),
    ...elements(table, slot).flatMap((element) => [`add element ${element}`, `delete element ${element}`]),
    `delete chain ${table} slot_${slot.index}`,
    rulesRemovalText(token, slot),
  ].join("\n");
}

/** Opens addresses for a time from now on; an open address gets the new time. */
export function openText(token: string, slot: NetworkSlot, opened: readonly { address: string; name: string; seconds: number }[]): string {
  const set = `inet ${tableOf(token)} ${namesSet(slot)}`;
  return opened
    .flatMap(({ address, name, seconds }) => [
      // Kernels before 6.12 keep the old timeout of an existing element.
      `add element ${set} { ${address} }`,
      `delete element ${set} { ${address} }`,
      // The comment keeps the name when the node ends. A name contains letters, digits, dots, hyphens and underscores only.
      `add element ${set} { ${address} timeout ${seconds}s comment "${name.slice(0, MAX_COMMENT_LENGTH)}" }\n`,
    ])
    .join("\n");
}

/** Closes addresses that a name had opened. */
export function forgetText(token: string, slot: NetworkSlot, addresses: readonly string[]): string {
  const table = `inet ${tableOf(token)}`;
  return addresses
    .flatMap((address) => sets(slot).flatMap((set) => [`add element ${table} ${set} { ${address} }`, `delete element ${table} ${set} { ${address} }\n`]))
    .join("\n");
}

function elements(table: string, { veth, guestAddress, index }: NetworkSlot): string[] {
  return [`${table} guests { "${veth}" . ${guestAddress} }`, `${table} egress { "${veth}" : jump slot_${index} }`];
}
