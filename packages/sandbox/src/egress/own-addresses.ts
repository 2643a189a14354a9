// The addresses of this host.
import { networkInterfaces } from "node:os";

/** The firewall refuses the host's own addresses to sandboxes; a connection that the node makes for one would not pass it. */
export function ownAddresses(): ReadonlySet<string> {
  return new Set(Object.values(networkInterfaces()).flatMap((all) => (all ?? []).map(({ address }) => address)));
}
