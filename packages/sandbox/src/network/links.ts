// Makes and removes the kernel's part of slots: namespaces, veth pairs, addresses, routes; many in one program call.
import { existsSync, readdirSync } from "node:fs";
import type { Spawner } from "@svc/kit/spawn.ts";
import { NETNS_FOLDER } from "./names.ts";
import type { NetworkSlot } from "./networks.ts";

/** One entry per interface of our own network namespace; /sys/class/net shows the namespace that mounted it. */
const DEVICES_FOLDER = "/proc/sys/net/ipv4/conf";
const IPV6_FOLDER = "/proc/sys/net/ipv6";

/** Set on the host's side of each veth: strict source check, no answers for the host's other addresses, no redirects. */
const vethSettings = { rp_filter: 1, arp_ignore: 1, accept_redirects: 0, send_redirects: 0, accept_source_route: 0 };

/** Slots with their interfaces up; the guest reaches nothing before its rules are in force. */
export async function createLinks(spawner: Spawner, slots: readonly NetworkSlot[], mtuBytes: number): Promise<void> {
  // The guest gets no IPv6 address of its own making either; a kernel without IPv6 refuses the very question.
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
  // A pair has no carrier, and carries nothing, before the guest's end is up: by then the settings of the host's end hold.
  const script = [
    "set -e",
    batch([], [...devices, ...hostSide]),
    ...slots.flatMap(({ veth }) => settingLines(veth)),
    ...slots.map((slot) => batch(["-n", slot.netns], [...withoutIpv6, "link set lo up", "link set eth0 up", ...guestSide(slot)])),
  ];
  await spawner.check(["sh", "-s"], { input: script.join("\n") });
}

/** The address and routes of a guest's eth0; gVisor takes them away when it starts. Succeeds when they are there. */
export async function restoreGuestLinks(spawner: Spawner, slot: NetworkSlot): Promise<void> {
  await spawner.check(["sh", "-s"], { input: ["set -e", batch(["-n", slot.netns], guestSide(slot))].join("\n") });
}

/**
 * Removes what is left of the named slots. The veths go as one group, since each removal on its own
 * waits for the kernel's readers; `group` must be this home's alone.
 */
export async function removeLinks(spawner: Spawner, names: readonly string[], group: number): Promise<void> {
  const { devices, namespaces } = present(names);
  const lines = [
    ...devices.map((name) => `link set ${name} group ${group}`),
    ...(devices.length > 0 ? [`link del group ${group}`] : []),
    ...namespaces.map((name) => `netns del ${name}`),
  ];
  if (lines.length === 0) return;
  // A namespace that ends takes its veth along at any moment: what is already gone is no failure, what stays is.
  const result = await spawner.run(["ip", "-force", "-batch", "-"], { input: `${lines.join("\n")}\n`, repeatable: true });
  const left = present(names);
  const stayed = [...new Set([...left.devices, ...left.namespaces])];
  if (stayed.length > 0) throw new Error(`could not be removed: ${stayed.join(", ")}: ${result.stderr.trim()}`);
}

/** Names of namespaces and host interfaces that begin with `prefix`. */
export function listLinks(prefix: string): string[] {
  const names = [...listFolder(NETNS_FOLDER), ...listFolder(DEVICES_FOLDER)];
  return [...new Set(names.filter((name) => name.startsWith(prefix)))];
}

/** Whether the namespace and the host's interface both exist; `any`: at least one of them. */
export function hasLinks(slot: NetworkSlot, which: "both" | "any" = "both"): boolean {
  const { devices, namespaces } = present([slot.netns]);
  return devices.length + namespaces.length >= (which === "both" ? 2 : 1);
}

/** The lines of one `ip -batch` call, fed by a here-document: one program start for all of them. */
function batch(options: readonly string[], lines: readonly string[]): string {
  return `ip ${[...options, "-batch", "-"].join(" ")} <<'END'\n${lines.join("\n")}\nEND`;
}

function guestSide({ guestAddress, prefixLength, gatewayAddress }: NetworkSlot): string[] {
  return [
    `addr replace ${guestAddress}/${prefixLength} dev eth0`,
    // With a /32 the gateway is on no subnet of the guest: siblings are reached only through it, where rules apply.
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
