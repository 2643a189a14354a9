// The names of everything that a home puts into the host's network (netns, veth, table, anchor), by which it is found again.
import { createHash } from "node:crypto";
import { realpathSync } from "node:fs";
import { type Cidr, formatAddress } from "../egress/cidr.ts";
import type { NetworkSlot } from "./networks.ts";

export const NETNS_FOLDER = "/run/netns";

/** Addresses per home: one for the node, one per sandbox. */
export const BLOCK_PREFIX_LENGTH = 22;
export const GATEWAY_OFFSET = 1;
export const FIRST_INDEX = 2;
export const LAST_INDEX = 2 ** (32 - BLOCK_PREFIX_LENGTH) - 2;

/** The number of sandboxes for which a home has addresses. */
export const SLOTS = LAST_INDEX - FIRST_INDEX + 1;

/** Six hexadecimal digits: `svc-<token>-<index>` must fit the kernel's 15 characters. */
export function tokenOf(home: string): string {
  return createHash("sha256").update(realpathSync(home)).digest("hex").slice(0, 6);
}

export const tableOf = (token: string): string => `svc_${token}`;
export const prefixOf = (token: string): string => `svc-${token}-`;

export function indexOf(token: string, name: string): number | undefined {
  const digits = name.startsWith(prefixOf(token)) ? name.slice(prefixOf(token).length) : "";
  return /^\d{1,4}$/.test(digits) ? Number(digits) : undefined;
}

export const gatewayOf = (block: Cidr): string => formatAddress(block.base + GATEWAY_OFFSET);

/** netns and host veth share a name, so that an operator sees which belong together. */
export function slotAt(token: string, block: Cidr, index: number): NetworkSlot {
  const name = `${prefixOf(token)}${index}`;
  return {
    index,
    netns: name,
    netnsPath: `${NETNS_FOLDER}/${name}`,
    veth: name,
    guestAddress: formatAddress(block.base + index),
    prefixLength: 32,
    gatewayAddress: gatewayOf(block),
  };
}
