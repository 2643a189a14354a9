// IPv4 addresses and CIDR blocks as numbers: parsing, formatting, overlap.
import { isIPv4 } from "node:net";

/** An aligned block of IPv4 addresses. */
export type Cidr = { readonly base: number; readonly prefixLength: number };

export function parseAddress(text: string): number | undefined {
  if (!isIPv4(text)) return undefined;
  return text.split(".").reduce((value, part) => value * 256 + Number(part), 0);
}

export function formatAddress(address: number): string {
  return [24, 16, 8, 0].map((shift) => Math.floor(address / 2 ** shift) % 256).join(".");
}

export const sizeOf = (cidr: Cidr): number => 2 ** (32 - cidr.prefixLength);

/** Parses `a.b.c.d/n` or a single address; undefined for anything else, and for bits set beyond the prefix. */
export function parseCidr(text: string): Cidr | undefined {
  const [address = "", length = "32", ...more] = text.split("/");
  const base = parseAddress(address);
  if (base === undefined || more.length > 0 || !/^\d{1,2}$/.test(length)) return undefined;
  const cidr = { base, prefixLength: Number(length) };
  if (cidr.prefixLength > 32 || base % sizeOf(cidr) !== 0) return undefined;
  return cidr;
}

export const formatCidr = (cidr: Cidr): string => `${formatAddress(cidr.base)}/${cidr.prefixLength}`;

export function overlaps(a: Cidr, b: Cidr): boolean {
  return a.base < b.base + sizeOf(b) && b.base < a.base + sizeOf(a);
}

export function contains(outer: Cidr, address: number): boolean {
  return address >= outer.base && address < outer.base + sizeOf(outer);
}
