// Finds the node of this machine's home by the file that it keeps while it runs.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { isAlive, type ProcessName } from "./up-state.ts";

export type OwnNode = ProcessName & {
  /** The URL as people write it. */
  readonly url: string;
  /** The address that is dialled: `localhost` may lead to another server that listens on the port of the other IP version. */
  readonly address: string;
  /** The authority that signed the certificate of a server with `--tls self-signed`. */
  readonly authorityFile?: string;
};

/** Returns undefined if none is running; a file that was left behind does not name a living process. */
export function runningNode(home: string): OwnNode | undefined {
  try {
    const node = JSON.parse(readFileSync(join(home, "node.json"), "utf8")) as OwnNode;
    return typeof node.address === "string" && isAlive(node) ? node : undefined;
  } catch {
    return undefined;
  }
}

/** Returns true if `url` is the node's: its own URL, or another name of this machine with its port. */
export function isNodeAt({ url: own, address }: OwnNode, url: string): boolean {
  if (url === own || url === address) return true;
  // With TLS, `address` is a port of loopback for this machine's own programs.
  const [given, bound] = [new URL(url), new URL(own)];
  return given.protocol === bound.protocol && given.pathname === "/" && given.port === bound.port && isLoopback(url) && isLoopback(address);
}

export function isLoopback(url: string): boolean {
  const host = new URL(url).hostname;
  return host === "localhost" || host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host);
}
