// Makes and removes the kernel's part of slots (namespaces, veth pairs, addresses, routes), many in one program call.
import { existsSync, readdirSync } from "node:fs";
import type { Spawner } from "@svc/kit/spawn.ts";
import { NETNS_FOLDER } from "./names.ts";
import type { NetworkSlot } from "./networks.ts";

/** Lists the interfaces of our own network namespace; /sys/class/net shows the namespace that mounted it. */
const DEVICES_FOLDER = "/proc/sys/net/ipv4/conf";
const IPV6_FOLDER = "/proc/sys/net/ipv6";

/** Set on the host's side of each veth: strict source check, no answers for the host's other addresses, no redirects. */
const vethSettings = { rp_filter: 1, arp_ignore: 1, accept_redirects: 0, send_redirects: 0, accept_source_route: 0 };

/** Creates slots with their interfaces up; the guest reaches nothing before its rules are in force. */
export async function createLinks(spawner: Spawner, slots: readonly NetworkSlot[], mtuBytes: number): Promise<void> {
  // The guest must not generate an IPv6 address; a kernel without IPv6 rejects this setting.
  const withoutIpv6 = existsSync(IPV6_FOLDER) ? ["link set eth0 addrgenmode none"] : [];
  const devices = slots.flatMap(({ netns, veth }) => [
    `netns add ${netns}`,
    `link add ${veth} mtu ${mtuBytes} type veth peer name eth0 mtu ${mtuBytes} netns ${netns}`,
  ]);
  const hostSide = slots.flatMap(({ veth, guestAddress, gatewayAddress }) => [
    `addr add ${gatewayAddress}/32 dev ${veth}`,
    `link set ${veth} up`,
    `route add ${guestAddress}/32 dev ${veth} src ${gatewayAddress}`,
  ]);
  // A pair carries nothing before the guest's end is up, and by then the settings of the host's end are in force.
  const script = [
    "set -e",
    batch([], [...devices, ...hostSide]),
    ...slots.flatMap(({ veth }) => settingLines(veth)),
    ...slots.map((slot) => batch(["-n", slot.netns], [...withoutIpv6, "link set lo up", "link set eth0 up", ...guestSide(slot)])),
  ];
  await spawner.check(["sh", "-s"], { input: script.join("\n") });
}

/** Restores the address and routes of a guest's eth0, which gVisor removes when it starts. Succeeds if they exist. */
export async function restoreGuestLinks(spawner: Spawner, slot: NetworkSlot): Promise<void> {
  await spawner.check(["sh", "-s"], { input: ["set -e", batch(["-n", slot.netns], guestSide(slot))].join("\n") });
}

/**
 * Removes the rest of the named slots. The veths are removed as one group, since each single removal waits for the kernel's RCU readers; `group`
 * must belong to this home alone.
 */
export async function removeLinks(spawner: Spawner, names: readonly string[], group: number): Promise<void> {
  const { devices, namespaces } = present(names);
  const lines = [
    ...devices.map((name) => `link set ${name} group ${group}`),
    ...(devices.length > 0 ? [`link del group ${group}`] : []),
    ...namespaces.map((name) => `netns del ${name}`),
  ];
  if (lines.length === 0) return;
  // A namespace that ends removes its veth at any moment, so a missing device is not a failure, but a remaining one is.
  const result = await spawner.run(["ip", "-force", "-batch", "-"], { input: `${lines.join("\n")}\n`, repeatable: true });
  const left = present(names);
  const stayed = [...new Set([...left.devices, ...left.namespaces])];
  if (stayed.length > 0) throw new Error(`could not be removed: ${stayed.join(", ")}: ${result.stderr.trim()}`);
}

/** Returns the names of namespaces and host interfaces that begin with `prefix`. */
export function listLinks(prefix: string): string[] {
  const names = [...listFolder(NETNS_FOLDER), ...listFolder(DEVICES_FOLDER)];
  return [...new Set(names.filter((name) => name.startsWith(prefix)))];
}

/** Says whether both the namespace and the host's interface exist; with `any`, at least one of them. */
export function hasLinks(slot: NetworkSlot, which: "both" | "any" = "both"): boolean {
  const { devices, namespaces } = present([slot.netns]);
  return devices.length + namespaces.length >= (which === "both" ? 2 : 1);
}

/** Formats one `ip -batch` call with a here-document, so that all lines need only one program start. */
function batch(options: readonly string[], lines: readonly string[]): string {
  return `ip ${[...options, "-batch", "-"].join(" ")} <<'END'\n${lines.join("\n")}\nEND`;
}

function guestSide({ guestAddress, prefixLength, gatewayAddress }: NetworkSlot): string[] {
  return [
    `addr replace ${guestAddress}/${prefixLength} dev eth0`,
    // With a /32 the gateway is outside the guest's subnet, so siblings are only reached through it, where the rules apply.
    `route replace ${gatewayAddress} dev eth0 scope link`,
    `route replace default via ${gatewayAddress} dev eth0`,
  ];
}

function settingLines(veth: string): string[] {
  const ipv4 = Object.entries(vethSettings).map(([name, value]) => `echo ${value} > /proc/sys/net/ipv4/conf/${veth}/${name}`);
  const ipv6 = `/proc/sys/net/ipv6/conf/${veth}/disable_ipv6`;
  return [...ipv4, `if [ -e ${ipv6} ]; then echo 1 > ${ipv6}; fi`];
}

function present(names: readonly string[]): { devices: string[]; namespaces: string[] } {
  return {
    devices: names.filter((name) => existsSync(`${DEVICES_FOLDER}/${name}`)),
    namespaces: names.filter((name) => existsSync(`${NETNS_FOLDER}/${name}`)),
  };
}

function listFolder(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return []; // no namespace was ever made on this host
  }
}
