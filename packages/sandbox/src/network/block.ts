// Claims a home's block of addresses on this machine: race-free between nodes, and kept by the kernel across kill -9.

import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Failure, fail } from "@svc/contract/failures.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { type Cidr, contains, formatAddress, formatCidr, overlaps, parseAddress, parseCidr, sizeOf } from "../egress/cidr.ts";
import { listLinks } from "./links.ts";
import { BLOCK_PREFIX_LENGTH, gatewayOf, prefixOf } from "./names.ts";
import { tableRemovalText } from "./rules.ts";

// The claim is a pair of interfaces named after the block (`svcb` + its first address in hexadecimal) whose alias is the owner's token.
// The name is unique, the pair lives exactly as long as the slots' own interfaces can, and it has the gateway address, to which the node's DNS binds.
const ANCHOR = /^svcb([0-9a-f]{8})$/;

const LOCK_WAIT_MS = 10_000;
const LOCK_RETRY_MS = 20;

/** Binds an abstract Unix socket: only one process of this network namespace can own it, and the kernel releases it when the process dies. */
export async function claimName(name: string): Promise<Server | undefined> {
  const server = createServer((socket) => socket.destroy());
  server.unref();
  return new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => (error.code === "EADDRINUSE" ? resolve(undefined) : reject(error)));
    server.listen(`\0${name}`, () => resolve(server));
  });
}

export const ownerName = (token: string): string => `svc-networks-${token}`;

export type BlockRequest = {
  readonly token: string;
  /** The range from which blocks are taken. */
  readonly subnet: Cidr;
  /** The block this home had last, which is tried first. */
  readonly last: Cidr | undefined;
  /** Addresses that the host needs although no route names them (its resolvers). */
  readonly avoid: readonly string[];
};

/** Returns the home's block. An existing claim of this home is reused, and claims of dead homes without sandboxes are removed. */
export async function claimBlock(spawner: Spawner, { token, subnet, last, avoid }: BlockRequest): Promise<Cidr> {
  const lock = await machineLock();
  try {
    const taken: Cidr[] = [];
    for (const { block, owner } of await claims(spawner)) {
      if (owner === token) {
        await raise(spawner, token, block);
        return block;
      }
      if (abandoned(owner)) await clear(spawner, block, owner);
      else taken.push(block);
    }
    const occupied = [...taken, ...(await hostRanges(spawner, prefixOf(token)))];
    for (const block of candidates(token, subnet, last)) {
      if (occupied.some((range) => overlaps(range, block))) continue;
      if (avoid.some((address) => contains(block, parseAddress(address) ?? -1))) continue;
      await spawner.check(["ip", "link", "add", anchorOf(block), "type", "veth", "peer", "name", peerOf(block)]);
      await spawner.check(["ip", "link", "set", anchorOf(block), "alias", token]);
      await raise(spawner, token, block);
      return block;
    }
  } finally {
    lock.close();
  }
  return fail(
    "HOST_UNSUITABLE",
    `no free /${BLOCK_PREFIX_LENGTH} is left in ${formatCidr(subnet)}: other homes or the host's own routes use all of it; choose another network.subnet`,
  );
}

export async function releaseBlock(spawner: Spawner, block: Cidr): Promise<void> {
  await spawner.run(["ip", "link", "del", anchorOf(block)]);
}

export const anchorOf = (block: Cidr): string => `svcb${block.base.toString(16).padStart(8, "0")}`;
const peerOf = (block: Cidr): string => `svcp${block.base.toString(16).padStart(8, "0")}`;

/** Returns the anchors on this machine and their owners. */
async function claims(spawner: Spawner): Promise<{ block: Cidr; owner: string }[]> {
  const devices = JSON.parse(await spawner.check(["ip", "-j", "link", "show", "type", "veth"])) as { ifname?: string; ifalias?: string }[];
  return devices.flatMap(({ ifname = "", ifalias = "" }) => {
    const base = ANCHOR.exec(ifname)?.[1];
    return base === undefined ? [] : [{ block: { base: Number.parseInt(base, 16), prefixLength: BLOCK_PREFIX_LENGTH }, owner: ifalias }];
  });
}

/** Starts at an offset derived from the token, so that homes rarely collide and a home finds its block again. */
function* candidates(token: string, subnet: Cidr, last: Cidr | undefined): Generator<Cidr> {
  const within = last !== undefined && last.prefixLength === BLOCK_PREFIX_LENGTH && contains(subnet, last.base);
  if (within) yield last;
  const count = sizeOf(subnet) / 2 ** (32 - BLOCK_PREFIX_LENGTH);
  const start = Number.parseInt(token, 16);
  for (let step = 0; step < count; step++) {
    const base = subnet.base + ((start + step) % count) * 2 ** (32 - BLOCK_PREFIX_LENGTH);
    yield { base, prefixLength: BLOCK_PREFIX_LENGTH };
  }
}

async function raise(spawner: Spawner, token: string, block: Cidr): Promise<void> {
  const anchor = anchorOf(block);
  const ipv6 = `/proc/sys/net/ipv6/conf/${anchor}/disable_ipv6`;
  const script = [
    "set -e",
    `if [ -e ${ipv6} ]; then echo 1 > ${ipv6}; fi`,
    `ip addr replace ${gatewayOf(block)}/32 dev ${anchor}`,
    `ip link set ${anchor} up alias ${token}`,
  ];
  await spawner.check(["sh", "-s"], { input: script.join("\n") });
}

/** Says whether no process owns the owner's name and no sandbox of it is left. A claim without a token was interrupted. */
function abandoned(owner: string): boolean {
  if (owner === "") return true; // claims are made under the lock, which we have
  if (!/^[0-9a-f]{6}$/.test(owner)) return false; // not made by svc
  const alive = readFileSync("/proc/net/unix", "utf8")
    .split("\n")
    .some((line) => line.endsWith(` @${ownerName(owner)}`));
  return !alive && listLinks(prefixOf(owner)).length === 0;
}

async function clear(spawner: Spawner, block: Cidr, owner: string): Promise<void> {
  await releaseBlock(spawner, block);
  if (owner !== "") await spawner.run(["nft", "-f", "-"], { input: tableRemovalText(owner) });
}

async function machineLock(): Promise<Server> {
  for (let waitedMs = 0; waitedMs < LOCK_WAIT_MS; waitedMs += LOCK_RETRY_MS) {
    const lock = await claimName("svc-networks");
    if (lock !== undefined) return lock;
    await sleep(LOCK_RETRY_MS);
  }
  throw new Failure(
    "HOST_UNSUITABLE",
    `another process has held the abstract socket @svc-networks for ${LOCK_WAIT_MS} ms; find it with \`ss -xlp\` and end it`,
  );
}

/** Returns the ranges that the host owns or routes, except the default route and the home's own sandboxes. */
async function hostRanges(spawner: Spawner, ownPrefix: string): Promise<Cidr[]> {
  const routes = JSON.parse(await spawner.check(["ip", "-j", "-4", "route", "show", "table", "all"])) as { dst?: string; dev?: string }[];
  return routes.flatMap(({ dst, dev }) => {
    const range = dst === undefined || dev?.startsWith(ownPrefix) === true ? undefined : parseCidr(dst);
    return range === undefined || range.prefixLength === 0 ? [] : [range];
  });
}

export const describeBlock = (block: Cidr): string => `${formatCidr(block)} (gateway ${formatAddress(block.base + 1)})`;
