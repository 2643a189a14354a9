// Connections that sandboxes have opened to the outside, as the host's connection tracking knows them.
import { readFile } from "node:fs/promises";

const TRACKED = "/proc/net/nf_conntrack";

/** Addresses of sandboxes that hold a TCP connection which they opened; undefined where this host does not tell. */
export async function readOutbound(): Promise<ReadonlySet<string> | undefined> {
  const text = await readFile(TRACKED, "utf8").catch(() => undefined);
  return text === undefined ? undefined : outboundOf(text);
}

/** The first `src` of a line is the address of who opened the connection. */
export function outboundOf(text: string): ReadonlySet<string> {
  const found = new Set<string>();
  for (const [, address = ""] of text.matchAll(/^\S+\s+\d+\s+tcp\s+\d+\s+\d+\s+ESTABLISHED\s+src=(\S+)/gm)) found.add(address);
  return found;
}
