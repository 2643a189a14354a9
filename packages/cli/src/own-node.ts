// The node of this machine's home: where it listens, by the file that it keeps while it runs, and only while it does.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { isAlive, type ProcessName } from "./up-state.ts";

export type OwnNode = ProcessName & {
  /** As people write it. */
  readonly url: string;
  /** As it is dialled: `localhost` may lead to another server that holds the port on the other IP version. */
  readonly address: string;
};

/** Undefined where none runs; a file that outlived its node names no process that lives. */
export function runningNode(home: string): OwnNode | undefined {
  try {
    const node = JSON.parse(readFileSync(join(home, "node.json"), "utf8")) as OwnNode;
    return typeof node.address === "string" && isAlive(node) ? node : undefined;
  } catch {
    return undefined;
  }
}

/** Whether `url` names the node: its own URL, or another name of this machine with its port. */
export function isNodeAt({ url: own, address }: OwnNode, url: string): boolean {
  if (url === own || url === address) return true;
  const [given, held] = [new URL(url), new URL(address)];
  return given.protocol === "http:" && given.pathname === "/" && given.port === held.port && isLoopback(url) && isLoopback(address);
}

export function isLoopback(url: string): boolean {
  const host = new URL(url).hostname;
  return host === "localhost" || host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host);
}
