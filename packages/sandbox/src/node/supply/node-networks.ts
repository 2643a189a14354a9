// Opens the node's networks from its settings; without root there are none.
import type { Log } from "@svc/kit/log.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import type { Denial } from "../../network/denial.ts";
import type { Networks } from "../../network/networks.ts";
import type { RulesSupply } from "../../network/open-intercept.ts";
import { openNetworks } from "../../network/open-networks.ts";
import type { NodeSettings } from "../settings.ts";

export async function networksFor(
  home: string,
  settings: NodeSettings,
  spawner: Spawner,
  log: Log,
  onDenied: (denial: Denial) => void,
  rules: RulesSupply,
): Promise<Networks | undefined> {
  if (process.getuid?.() !== 0) {
    log.warn("not root: sandboxes are reached through a socket and have no network of their own");
    return undefined;
  }
  const { subnet, denied_cidrs, proxy_cidrs, dns, dns_queries_per_second, pool_size } = settings.network;
  return openNetworks({
    home,
    spawner,
    log,
    deniedCidrs: denied_cidrs,
    proxyCidrs: proxy_cidrs,
    poolSize: pool_size,
    onDenied,
    rules,
    ...(subnet === "" ? {} : { subnet }),
    dns: { perSecond: dns_queries_per_second, ...(dns.length === 0 ? {} : { upstreams: dns }) },
  });
}
