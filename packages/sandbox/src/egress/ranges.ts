// Sets of IPv4 addresses as merged ranges, since nftables refuses overlaps, and to test whether a set covers everything.
import { type Cidr, contains, formatAddress, sizeOf } from "./cidr.ts";

/** From first to last, both included. */
export type Range = { readonly first: number; readonly last: number };

const LAST_ADDRESS = 2 ** 32 - 1;

/** Returns sorted ranges without overlaps and without adjacent ones. */
export function mergeRanges(cidrs: readonly Cidr[]): Range[] {
  const sorted = cidrs.map((cidr) => ({ first: cidr.base, last: cidr.base + sizeOf(cidr) - 1 })).sort((a, b) => a.first - b.first);
  const merged: { first: number; last: number }[] = [];
  for (const range of sorted) {
    const before = merged.at(-1);
    if (before !== undefined && range.first <= before.last + 1) before.last = Math.max(before.last, range.last);
    else merged.push({ ...range });
  }
  return merged;
}

export const coversAll = (ranges: readonly Range[]): boolean => ranges.length === 1 && ranges[0]?.first === 0 && ranges[0].last === LAST_ADDRESS;

/** Formats ranges as the elements of an nftables set. */
export function formatRanges(ranges: readonly Range[]): string {
  return ranges.map(({ first, last }) => (first === last ? formatAddress(first) : `${formatAddress(first)}-${formatAddress(last)}`)).join(", ");
}

export const holding = (cidrs: readonly Cidr[], address: number): Cidr | undefined => cidrs.find((cidr) => contains(cidr, address));
