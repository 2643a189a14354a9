// Checks for `svc doctor` how well sandbox networks work on this host, by trying each part.
import { readFile } from "node:fs/promises";
import { asFailure } from "@svc/contract/failures.ts";
import { openLog } from "@svc/kit/log.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { openResolvers } from "../dns/resolvers.ts";
import { parseCidr } from "../egress/cidr.ts";
import { openDenialReader } from "./denial-reader.ts";
import { blockedForwarding } from "./host.ts";
import { homeText, MAX_CONNECTIONS_PER_SANDBOX, tableRemovalText } from "./rules.ts";

export type NetworkCheck = {
  readonly name: string;
  readonly works: boolean;
  readonly says: string;
  /** The remedy; empty when the check passed. */
  readonly fix: string;
  /** The consequence, if only a part of the network is missing. */
  readonly follows?: string;
};

/** Leaves no change behind. Without root only the first line is returned. */
export async function networkChecks({ spawner }: { readonly spawner: Spawner }): Promise<NetworkCheck[]> {
  if (process.getuid?.() !== 0) {
    return [failed("network", "not root: sandboxes run without a network of their own", "run svc as root for isolated networks")];
  }
  const ip = await tried("ip", spawner, ["ip", "-V"], "apt-get install iproute2");
  const nft = await tried("nft", spawner, ["nft", "--version"], "apt-get install nftables");
  if (!ip.works || !nft.works) return [ip, nft];
  return [
    ip,
    nft,
    await namespaces(spawner),
    await firewall(spawner),
    await networkLog(spawner),
    await forwarding(),
    await otherFirewalls(spawner),
    await resolvers(),
  ];
}

const passed = (name: string, says: string): NetworkCheck => ({ name, works: true, says, fix: "" });
const failed = (name: string, says: string, fix: string): NetworkCheck => ({ name, works: false, says, fix });

async function tried(name: string, spawner: Spawner, argv: string[], fix: string): Promise<NetworkCheck> {
  try {
    return passed(name, (await spawner.check(argv)).trim());
  } catch (error) {
    return failed(name, asFailure(error).message, fix);
  }
}

async function namespaces(spawner: Spawner): Promise<NetworkCheck> {
  const name = `svcd-${process.pid}`;
  const lines = [`netns add ${name}`, `link add ${name} type veth peer name eth0 netns ${name}`, `link del ${name}`, `netns del ${name}`];
  try {
    await spawner.check(["ip", "-batch", "-"], { input: `${lines.join("\n")}\n` });
    return passed("network namespaces", "a namespace with a veth pair was made and removed");
  } catch (error) {
    await spawner.run(["ip", "netns", "del", name]);
    return failed(
      "network namespaces",
      asFailure(error).message,
      "needs CAP_NET_ADMIN and CAP_SYS_ADMIN, a writable /run/netns and the kernel's veth module (modprobe veth); a container must be privileged",
    );
  }
}

/** Loads and removes the rules of a real node; they name no interface that exists. */
async function load(spawner: Spawner, logGroup: number | undefined): Promise<void> {
  const token = `d${process.pid % 100_000}`;
  const block = parseCidr("198.51.100.0/22") ?? { base: 0, prefixLength: 22 };
  await spawner.check(["nft", "-f", "-"], {
    input: homeText({
      token,
      block,
      deniedCidrs: [],
      dnsPort: 53,
      interceptPort: 1024,
      tunnelPort: 1025,
      dnsRate: { perSecond: 1, burst: 1 },
      logGroup,
      maxConnections: MAX_CONNECTIONS_PER_SANDBOX,
    }),
  });
  await spawner.check(["nft", "-f", "-"], { input: tableRemovalText(token) });
}

async function firewall(spawner: Spawner): Promise<NetworkCheck> {
  try {
    await load(spawner, undefined);
    return passed("firewall", "the rules of a node were loaded and removed");
  } catch (error) {
    return failed(
      "firewall",
      asFailure(error).message,
      "needs nf_tables with inet tables, NAT, fib, conntrack and reject in the kernel (modprobe nf_tables nft_masq nft_reject_inet nft_ct)",
    );
  }
}

/** The kernel reports denied connections and a program reads the reports; both are tried. */
async function networkLog(spawner: Spawner): Promise<NetworkCheck> {
  const name = "network log";
  const follows = "sandboxes' network logs do not say what was denied; it is denied all the same";
  try {
    const reader = await openDenialReader({ seed: process.pid % 0x1_0000, log: openLog("doctor", "silent"), onNoted: () => {} });
    reader.close();
  } catch (error) {
    return { ...failed(name, asFailure(error).message, "apt-get install tcpdump util-linux; modprobe nfnetlink_log"), follows };
  }
  try {
    await load(spawner, process.pid % 0x1_0000);
    return passed(name, "the firewall reports denied packets, and tcpdump reads them");
  } catch (error) {
    return { ...failed(name, asFailure(error).message, "needs nft_log in the kernel (modprobe nft_log)"), follows };
  }
}

async function forwarding(): Promise<NetworkCheck> {
  const on = (await readFile("/proc/sys/net/ipv4/ip_forward", "utf8").catch(() => "")).trim() === "1";
  return passed("forwarding", on ? "net.ipv4.ip_forward is on" : "net.ipv4.ip_forward is off; the node switches it on when it starts");
}

async function otherFirewalls(spawner: Spawner): Promise<NetworkCheck> {
  try {
    const blockers = await blockedForwarding(spawner);
    if (blockers.length === 0) return passed("other firewalls", "no other program's chain drops forwarded traffic");
    return failed("other firewalls", blockers.map(({ says }) => says).join("; "), blockers.map(({ fix }) => fix).join(" && "));
  } catch (error) {
    return failed("other firewalls", `cannot determine: ${asFailure(error).message}`, "look at `nft list ruleset` for chains with policy drop");
  }
}

async function resolvers(): Promise<NetworkCheck> {
  const upstreams = await openResolvers(undefined).current();
  return passed("resolvers", `sandboxes' DNS questions go to ${upstreams.map(({ address }) => address).join(", ")}`);
}
