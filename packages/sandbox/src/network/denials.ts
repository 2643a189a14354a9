// Turns refused packets and names into entries of a sandbox's network log: the sandbox, the rule and the count.
import type { Log } from "@svc/kit/log.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import type { DnsReport } from "../dns/worker.ts";
import { type Cidr, formatCidr, parseAddress } from "../egress/cidr.ts";
import { addressRefusal, nameAllowed } from "../egress/policy.ts";
import { holding } from "../egress/ranges.ts";
import { HTTPS_PORT, type Note } from "../intercept/messages.ts";
import { type Denial, type PacketReason, packetReasons } from "./denial.ts";
import { openFolder } from "./denial-log.ts";
import type { Fence } from "./fence.ts";
import type { Noted } from "./nflog.ts";
import { NOTED_PER_SECOND } from "./rules.ts";

/** Bound on packets that wait until their interface is known. */
const MAX_UNASSIGNED = 256;
/** Minimum time between two searches for an unknown interface. */
const LOOK_AGAIN_MS = 1000;
const DNS_PORT = 53;
const LISTED = `the maximum is ${NOTED_PER_SECOND} a second after a burst`;

export type DenialsOptions = {
  readonly spawner: Spawner;
  readonly log: Log;
  readonly deniedCidrs: readonly Cidr[];
  readonly maxConnections: number;
  readonly dnsPerSecond: number;
  readonly gatewayAddress: string;
  readonly fenceAt: (address: string) => Fence | undefined;
  readonly fenceOn: (veth: string) => Fence | undefined;
  readonly onDenied: (denial: Denial) => void;
  /** Wall clock. */
  readonly now: () => number;
};

export interface Denials {
  packet(noted: Noted): void;
  names(fence: Fence, report: DnsReport): void;
  /** Reports a connection that failed in the node's thread: HTTPS to a host with rules, or one through an egress proxy. */
  rules(fence: Fence, note: Pick<Note, "name" | "address" | "port" | "why">): void;
  /** Adds the firewall's counts of packets that it did not report individually, per interface and since the table was made. */
  counted(counts: ReadonlyMap<string, number>): void;
  close(): void;
}

export function openDenials(options: DenialsOptions): Denials {
  const folder = openFolder(options.onDenied);
  const lastCounts = new Map<string, number>();
  let names = new Map<number, string>();
  let unassigned: Noted[] = [];
  let looking: NodeJS.Timeout | undefined;
  let first = true;

  function report(fence: Fence, noted: Noted): void {
    const { protocol, address, port } = noted;
    const reason = packetReasons.find((known) => known === noted.reason);
    if (reason === undefined) return;
    const name = reason === "policy" ? fence.nameOf(address) : undefined;
    folder.report({
      slot: fence.slot,
      atMs: options.now(),
      protocol,
      address,
      ...(port === undefined ? {} : { port }),
      ...(name === undefined ? {} : { name }),
      reason,
      detail: detailOf(reason, fence, noted, name),
      repeated: 1,
    });
  }

  function detailOf(reason: PacketReason, { read }: Fence, { address, source }: Noted, name: string | undefined): string {
    switch (reason) {
      case "closed_range": {
        const range = holding(options.deniedCidrs, parseAddress(address) ?? -1);
        return range === undefined ? "leads to an address that is closed to sandboxes" : `is in ${formatCidr(range)}, which no rule opens`;
      }
      case "sibling":
        return "is in the range of the sandboxes, which cannot reach one another";
      case "host":
        return "is an address of the host, of which sandboxes reach nothing but DNS";
      case "direct":
        return "would leave directly, while this sandbox has an egress proxy: connect again";
      case "connections":
        return `is more than the ${options.maxConnections} connections that one sandbox may have`;
      case "spoofed":
        return `was sent from ${source}, which is not this sandbox's address`;
      case "policy":
        // The name is allowed but the address is closed: the program caches addresses longer than their TTL.
        if (name !== undefined && nameAllowed(read, name)) return "is not open any more: the name was resolved too long ago, resolve it again";
        return addressRefusal(read, address);
    }
  }

  /** A packet with a spoofed source can only be assigned by its interface. */
  function assign(noted: Noted): void {
    const veth = names.get(noted.interfaceIndex);
    if (veth === undefined) {
      if (unassigned.length < MAX_UNASSIGNED) unassigned.push(noted);
      looking ??= setTimeout(() => void look(), first ? 0 : LOOK_AGAIN_MS).unref();
      first = false;
      return;
    }
    const fence = options.fenceOn(veth);
    if (fence !== undefined) report(fence, noted);
  }

  async function look(): Promise<void> {
    try {
      const links = JSON.parse(await options.spawner.check(["ip", "-j", "link", "show", "type", "veth"], { repeatable: true })) as {
        ifindex: number;
        ifname: string;
      }[];
      names = new Map(links.map(({ ifindex, ifname }) => [ifindex, ifname]));
    } catch (error) {
      options.log.warn({ err: error }, "cannot determine the interfaces of denied packets");
    }
    const waiting = unassigned;
    unassigned = [];
    looking = undefined;
    for (const noted of waiting) {
      const fence = options.fenceOn(names.get(noted.interfaceIndex) ?? "");
      if (fence !== undefined) report(fence, noted);
    }
  }

  return {
    packet(noted) {
      const fence = noted.reason === "spoofed" ? undefined : options.fenceAt(noted.source);
      if (fence !== undefined) report(fence, noted);
      else if (noted.interfaceIndex !== 0) assign(noted);
    },
    names({ slot }, { refused, unlisted, dropped }) {
      const what = { slot, atMs: options.now(), address: options.gatewayAddress, port: DNS_PORT } as const;
      for (const { name, transport, why } of refused) {
        folder.report({ ...what, protocol: transport, ...(name === "" ? {} : { name }), reason: "dns", detail: why, repeated: 1 });
      }
      if (unlisted > 0) options.onDenied({ ...what, protocol: "any", reason: "unlisted_names", detail: LISTED, repeated: unlisted });
      if (dropped === 0) return;
      const detail = `more than ${options.dnsPerSecond} a second are not answered`;
      folder.report({ ...what, protocol: "udp", reason: "dns_rate", detail, repeated: dropped });
    },
    rules(fence, { name, address, port, why }) {
      const known = address === "" && name !== undefined ? (fence.ruled.addressesOf(name)[0] ?? "") : address;
      folder.report({
        slot: fence.slot,
        atMs: options.now(),
        protocol: "tcp",
        address: known,
        port: port ?? HTTPS_PORT,
        ...(name === undefined ? {} : { name }),
        reason: port === undefined ? "rules" : "tunnel",
        detail: why,
        repeated: 1,
      });
    },
    counted(counts) {
      for (const [veth, count] of counts) {
        const before = lastCounts.get(veth) ?? 0;
        lastCounts.set(veth, count);
        const fence = options.fenceOn(veth);
        // A smaller count means that the table was recreated and counts from zero.
        const more = count < before ? count : count - before;
        if (fence === undefined || more === 0) continue;
        options.onDenied({ slot: fence.slot, atMs: options.now(), protocol: "any", address: "", reason: "unlisted", detail: LISTED, repeated: more });
      }
    },
    close() {
      clearTimeout(looking);
      folder.close();
    },
  };
}
