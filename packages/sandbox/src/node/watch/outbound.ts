// Finds TCP connections that sandboxes opened to the outside, in the host's connection tracking.
import { readFile } from "node:fs/promises";

const TRACKED = "/proc/net/nf_conntrack";

/** Returns the addresses of sandboxes with an open TCP connection of their own; undefined where the host does not list connections. */
export async function readOutbound(): Promise<ReadonlySet<string> | undefined> {
  const text = await readFile(TRACKED, "utf8").catch(() => undefined);
  return text === undefined ? undefined : outboundOf(text);
}

/** The first `src` of a line is the address that opened the connection. */
export function outboundOf(text: string): ReadonlySet<string> {
  const found = new Set<string>();
  for (const [, address = ""] of text.matchAll(/^\S+\s+\d+\s+tcp\s+\d+\s+\d+\s+ESTABLISHED\s+src=(\S+)/gm)) found.add(address);
  return found;
}
