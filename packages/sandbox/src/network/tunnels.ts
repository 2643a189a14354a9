// Decides where a connection of a sandbox with an egress proxy goes: by its destination, the name in its first bytes, and the policy.
import { isIPv4 } from "node:net";
import { fail } from "@svc/contract/failures.ts";
import { type Cidr, contains, parseAddress } from "../egress/cidr.ts";
import { addressRefusal, destinationAllowed, nameAllowed, type ReadPolicy } from "../egress/policy.ts";
import { type EgressProxy, splitProxyAddress } from "../egress/proxy.ts";
import type { DialledProxy } from "../egress/socks5.ts";
import type { Tunnel, TunnelKey } from "../intercept/messages.ts";
import { hasOriginalDestination } from "../intercept/original-destination.ts";
import type { Fence } from "./fence.ts";

export type TunnelsParts = {
  readonly fenceAt: (address: string) => Fence | undefined;
  /** Asks the node's resolvers. */
  readonly resolve: (name: string) => Promise<readonly string[]>;
  /** False for addresses in ranges that no sandbox reaches, and for the host's own. */
  readonly isOpenable: (address: string) => boolean;
  /** Ranges in which a proxy may be although no sandbox reaches them. */
  readonly proxyCidrs: readonly Cidr[];
  /** Authorities in PEM that the host's own store lacks. */
  readonly authorities: string;
  /** Decrypts a password; undefined if it was encrypted under another deployment's key. */
  readonly unseal: (sealed: string) => string | undefined;
};

export interface Tunnels {
  decide(key: TunnelKey): Promise<Tunnel>;
  /** Returns the proxy to dial. @throws INVALID_REQUEST if its name does not resolve, or leads to a closed range. */
  proxyOf(proxy: EgressProxy): Promise<DialledProxy>;
  /** Checks a proxy before a sandbox gets it. @throws INVALID_REQUEST, HOST_UNSUITABLE. */
  admit(proxy: EgressProxy): Promise<void>;
}

export function openTunnels({ fenceAt, resolve, isOpenable, proxyCidrs, authorities, unseal }: TunnelsParts): Tunnels {
  async function proxyOf({ address, username, sealedPassword, tls }: EgressProxy): Promise<DialledProxy> {
    const { host, port } = splitProxyAddress(address);
    const found = isIPv4(host) ? [host] : await resolve(host);
    const refuse = (why: string): never => fail("INVALID_REQUEST", `network.egressProxy.address: "${address}" ${why}`);
    if (found.length === 0) refuse("does not resolve: the node's DNS knows no IPv4 address of it");
    const reachable = found.filter((each) => isOpenable(each) || proxyCidrs.some((cidr) => contains(cidr, parseAddress(each) ?? -1)));
    if (reachable.length === 0) refuse(`leads to ${found[0]}, which is closed to sandboxes and outside of network.proxy_cidrs`);
    const password = sealedPassword === undefined ? undefined : unseal(sealedPassword);
    if (sealedPassword !== undefined && password === undefined)
      refuse("has a password that was stored under another deployment's key: set the network of this sandbox again");
    return {
      address,
      hosts: reachable,
      port,
      ...(username === undefined ? {} : { username }),
      ...(password === undefined ? {} : { password }),
      ...(tls === undefined ? {} : { tls: { serverName: host, ...tls, authorities } }),
    };
  }

  return {
    proxyOf,
    async admit(proxy) {
      if (!hasOriginalDestination())
        fail(
          "HOST_UNSUITABLE",
          "network.egressProxy: this node lacks the addon that it needs; run ./svc setup --only apt native on its machine, and start it again",
        );
      await proxyOf(proxy);
    },
    async decide({ sandbox, address, port, name }) {
      const fence = fenceAt(sandbox);
      if (fence === undefined) return refused("was refused: its sandbox is gone");
      const { read } = fence;
      const { proxy } = read.policy;
      if (proxy === undefined) return refused("was refused: its sandbox has no egress proxy any more; connect again");
      if (!isOpenable(address)) return refused("leads to an address that is closed to sandboxes");
      // The firewall let the connection pass by its address. A name decides where it goes only if rules by name allowed it.
      const isByName = !allowsAddress(read, address);
      if (isByName && name === undefined && (port === 80 || port === 443)) return { verdict: "name" };
      const host = isByName ? (name ?? (name === undefined ? fence.nameOf(address) : undefined)) : address;
      if (host === undefined) return refused(`was refused: it names no host (${port === 443 ? "SNI" : "Host"}), and ${addressRefusal(read, address)}`);
      if (isByName && !nameAllowed(read, host)) return refused(`was refused: it names ${host}, which ${addressRefusal(read, address)}`);
      try {
        return { verdict: "dial", proxy: await proxyOf(proxy), host };
      } catch (error) {
        return refused(`was refused: ${(error as Error).message}`);
      }
    },
  };
}

const refused = (why: string): Tunnel => ({ verdict: "refuse", why });

/** True if the policy allows the address whatever its name is; no rule names the empty one. */
const allowsAddress = (read: ReadPolicy, address: string): boolean => destinationAllowed(read, "", address);
