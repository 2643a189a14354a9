// The parts of the host that all sandbox networks need: forwarding, the uplink's packet size, no other firewall that blocks traffic.
import { readFile, writeFile } from "node:fs/promises";
import { fail } from "@svc/contract/failures.ts";
import type { Spawner } from "@svc/kit/spawn.ts";

const FORWARDING = "/proc/sys/net/ipv4/ip_forward";
const LEGACY_TABLES = "/proc/net/ip_tables_names";
const ETHERNET_MTU_BYTES = 1500;
const MIN_MTU_BYTES = 576;

export type Blocker = { readonly says: string; readonly fix: string };

/** Returns whether forwarding was off and is on now. It is never switched off again, since other programs may rely on it by then. */
export async function enableForwarding(): Promise<boolean> {
  if ((await readFile(FORWARDING, "utf8")).trim() === "1") return false;
  await writeFile(FORWARDING, "1\n").catch((error: unknown) =>
    fail("HOST_UNSUITABLE", "net.ipv4.ip_forward is off and cannot be switched on from here; run `sysctl -w net.ipv4.ip_forward=1` on the host", {
      cause: error,
    }),
  );
  return true;
}

/** Returns the smallest MTU of the default routes' interfaces, so that sandboxes' packets fit the uplink. */
export async function uplinkMtuBytes(spawner: Spawner): Promise<number> {
  const routes = JSON.parse(await spawner.check(["ip", "-j", "-4", "route", "show", "default"])) as { dev?: string }[];
  const sizes = await Promise.all(routes.map(async ({ dev }) => Number(await readFile(`/sys/class/net/${dev}/mtu`, "utf8").catch(() => ETHERNET_MTU_BYTES))));
  return Math.max(MIN_MTU_BYTES, Math.min(ETHERNET_MTU_BYTES, ...sizes));
}

/** Finds other programs' chains that drop traffic by default and do not name sandboxes: no rule of ours can override them. */
export async function blockedForwarding(spawner: Spawner): Promise<Blocker[]> {
  return [...(await nftBlockers(spawner)), ...(await legacyBlockers(spawner))];
}

type NftChain = { chain?: { family: string; table: string; name: string; hook?: string; policy?: string } };

async function nftBlockers(spawner: Spawner): Promise<Blocker[]> {
  const listing = JSON.parse(await spawner.check(["nft", "-j", "list", "chains"])) as { nftables: NftChain[] };
  const blockers: Blocker[] = [];
  for (const { chain } of listing.nftables) {
    if (chain?.policy !== "drop" || !["ip", "inet"].includes(chain.family) || /^svc_[0-9a-f]{6}$/.test(chain.table)) continue;
    if (chain.hook !== "forward" && chain.hook !== "input") continue;
    const { code, stdout } = await spawner.run(["nft", "list", "chain", chain.family, chain.table, chain.name]);
    if (code !== 0 || stdout.includes('"svc-')) continue;
    const name = `${chain.family} ${chain.table} ${chain.name}`;
    const accept = (match: string): string => `nft insert rule ${name} ${match} accept`;
    blockers.push(
      chain.hook === "forward"
        ? {
            says: `the firewall chain "${name}" drops forwarded traffic: sandboxes may not reach the internet`,
            fix: `${accept("iifname 'svc-*'")} && ${accept("oifname 'svc-*'")}`,
          }
        : { says: `the firewall chain "${name}" drops traffic to this host: sandboxes may get no DNS`, fix: accept("iifname 'svc-*'") },
    );
  }
  return blockers;
}

async function legacyBlockers(spawner: Spawner): Promise<Blocker[]> {
  // Running iptables-legacy would load its kernel modules on hosts that do not use it.
  const tables = await readFile(LEGACY_TABLES, "utf8").catch(() => "");
  if (!tables.split("\n").includes("filter")) return [];
  const listing = await spawner.run(["iptables-legacy", "-S"]).catch(() => undefined);
  if (listing === undefined || listing.code !== 0) return [];
  const blockers: Blocker[] = [];
  for (const [chain, what] of [
    ["FORWARD", "reach the internet"],
    ["INPUT", "get DNS"],
  ] as const) {
    const named = listing.stdout.split("\n").some((line) => line.startsWith(`-A ${chain} `) && line.includes(" svc-"));
    if (named || !listing.stdout.includes(`-P ${chain} DROP`)) continue;
    const accepts = chain === "FORWARD" ? ["-i", "-o"] : ["-i"];
    blockers.push({
      says: `the iptables chain ${chain} drops what it does not name: sandboxes may not ${what}`,
      fix: accepts.map((side) => `iptables-legacy -I ${chain} ${side} svc-+ -j ACCEPT`).join(" && "),
    });
  }
  return blockers;
}
