// Decides where an HTTPS connection to an address of a host with rules goes: by the name in its handshake and the sandbox's policy.
import { Resolver } from "node:dns/promises";
import type { Resolvers } from "../dns/resolvers.ts";
import { hasRules } from "../egress/host-rules.ts";
import { ownAddresses } from "../egress/own-addresses.ts";
import { addressRefusal, destinationAllowed, nameRefusal } from "../egress/policy.ts";
import type { Route } from "../intercept/messages.ts";
import type { Fence } from "./fence.ts";
import type { Tunnels } from "./tunnels.ts";

const RESOLVE_MS = 5_000;
const RESOLVE_TRIES = 2;

export type HostRoutesParts = {
  readonly fenceAt: (address: string) => Fence | undefined;
  readonly resolvers: Resolvers;
  /** False for addresses in ranges that no sandbox reaches. */
  readonly isOpenable: (address: string) => boolean;
  readonly proxyOf: Tunnels["proxyOf"];
};

export type HostRoutes = (sandbox: string, name: string | undefined) => Promise<Route>;

/** Asks the node's resolvers for the addresses of a name; returns none if there are none, or no answer. */
export async function resolveName(resolvers: Resolvers, name: string): Promise<string[]> {
  const resolver = new Resolver({ timeout: RESOLVE_MS, tries: RESOLVE_TRIES });
  resolver.setServers((await resolvers.current()).map(({ address, port }) => `${address}:${port}`));
  return resolver.resolve4(name).catch(() => []);
}

export function openHostRoutes({ fenceAt, resolvers, isOpenable, proxyOf }: HostRoutesParts): HostRoutes {
  return async (sandbox, name) => {
    const fence = fenceAt(sandbox);
    if (fence === undefined) return { verdict: "refuse", address: "", why: "was refused: its sandbox is gone" };
    if (name === undefined)
      return { verdict: "refuse", address: "", why: "was refused: its TLS handshake names no host (SNI), and its address belongs to a host with rules" };
    const known = fence.ruled.addressesOf(name);
    const refused = known.length > 0 ? undefined : nameRefusal(fence.read, name);
    if (refused !== undefined) return { verdict: "refuse", address: "", why: `was refused: ${refused}` };
    const addresses = known.length > 0 ? known : await resolveName(resolvers, name);
    const host = ownAddresses();
    const [first = ""] = addresses;
    const reachable = addresses.filter((address) => isOpenable(address) && !host.has(address));
    if (addresses.length > 0 && reachable.length === 0)
      return { verdict: "refuse", address: first, why: `was refused: its address ${first} is closed to sandboxes` };
    // The policy may have been replaced while the name was resolved.
    const { read } = fence;
    const allowed = reachable.filter((address) => destinationAllowed(read, name, address));
    if (addresses.length > 0 && allowed.length === 0) return { verdict: "refuse", address: first, why: `was refused: ${addressRefusal(read, first)}` };
    const { proxy } = read.policy;
    const verdict = hasRules(read.policy.rules, name) ? "open" : "pass";
    if (proxy === undefined) return { verdict, addresses: allowed };
    try {
      return { verdict, addresses: allowed, proxy: await proxyOf(proxy) };
    } catch (error) {
      return { verdict: "refuse", address: first, why: `was refused: ${(error as Error).message}` };
    }
  };
}
