// The networks of one home: claims its addresses, maintains its rules, prepares slots ahead, and answers their DNS questions.
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import type { Server } from "node:net";
import { join } from "node:path";
import { asFailure, Failure, fail, isDiskFull } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import type { Found } from "../dns/answer.ts";
import { openResolvers, type Resolvers } from "../dns/resolvers.ts";
import { type DnsThread, openDnsThread } from "../dns/thread.ts";
import { type Cidr, contains, formatCidr, parseAddress, parseCidr } from "../egress/cidr.ts";
import { ownAddresses } from "../egress/own-addresses.ts";
import type { Intercept } from "../intercept/thread.ts";
import { claimBlock, claimName, describeBlock, ownerName, releaseBlock } from "./block.ts";
import { defaultDeniedCidrs } from "./closed-ranges.ts";
import type { Denial } from "./denial.ts";
import { type DenialReader, openDenialReader } from "./denial-reader.ts";
import { type Denials, openDenials } from "./denials.ts";
import type { Fence } from "./fence.ts";
import { blockedForwarding, enableForwarding, uplinkMtuBytes } from "./host.ts";
import { openHostRoutes, resolveName } from "./host-routes.ts";
import { BLOCK_PREFIX_LENGTH, gatewayOf, tableOf, tokenOf } from "./names.ts";
import type { Networks } from "./networks.ts";
import { interceptFor, type RulesSupply } from "./open-intercept.ts";
import { homeText, MAX_CONNECTIONS_PER_SANDBOX } from "./rules.ts";
import { Slots } from "./slots.ts";
import { openTunnels, type Tunnels } from "./tunnels.ts";

export const defaultSubnet = "10.200.0.0/13";
const DEFAULT_POOL_SIZE = 8;
const DEFAULT_DNS_PER_SECOND = 200;
/** Seconds of the rate that a sandbox may use at once, since a page or an installer asks for many names together. */
const DNS_BURST_SECONDS = 5;
/** Ranges that no name opens, whatever else is denied: this host, multicast, and invalid addresses. */
const neverOpened: readonly Cidr[] = ["0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3"].flatMap((text) => parseCidr(text) ?? []);

export type NetworksOptions = {
  readonly home: string;
  readonly spawner: Spawner;
  readonly log: Log;
  /** The range from which homes on this machine take their blocks of 1021 slots. */
  readonly subnet?: string;
  /** Ranges that no sandbox reaches, in addition to the host's own addresses and other sandboxes. */
  readonly deniedCidrs?: readonly string[];
  /** Ranges in which egress proxies may be although sandboxes cannot reach them. */
  readonly proxyCidrs?: readonly string[];
  /** DNS servers to ask; by default the host's, as /etc/resolv.conf currently names them. */
  readonly dns?: { readonly upstreams?: readonly string[]; readonly perSecond?: number };
  /** Slots prepared ahead of attach(). */
  readonly poolSize?: number;
  /** Bound on the outgoing connections of one sandbox. */
  readonly maxConnections?: number;
  /** Called with each denial; without it nothing is logged. */
  readonly onDenied?: (denial: Denial) => void;
  /** Applies rules by host; absent: such rules have no effect. */
  readonly rules?: RulesSupply;
};

/** Saved from a home's last run, so that live sandboxes keep the same addresses and DNS port. */
type Remembered = { block?: string; dnsPort?: number; interceptPort?: number; tunnelPort?: number };

export async function openNetworks(options: NetworksOptions): Promise<Networks> {
  const { spawner, log } = options;
  const subnet = cidrSetting("network.subnet", options.subnet ?? defaultSubnet);
  if (subnet.prefixLength > BLOCK_PREFIX_LENGTH) {
    fail("SETTING_INVALID", `network.subnet ${formatCidr(subnet)} is too small: one home takes a /${BLOCK_PREFIX_LENGTH}`);
  }
  // IPv6 is closed as a whole, so its blocks may be named but change nothing.
  const deniedCidrs = (options.deniedCidrs ?? defaultDeniedCidrs)
    .filter((text) => !text.includes(":"))
    .map((text) => cidrSetting("network.denied_cidrs", text));
  const proxyCidrs = (options.proxyCidrs ?? []).map((text) => cidrSetting("network.proxy_cidrs", text));
  const resolvers = openResolvers(options.dns?.upstreams);
  if (process.getuid?.() !== 0)
    fail("HOST_UNSUITABLE", "sandbox networks need root (network namespaces, nftables); without root sandboxes run without a network of their own");

  mkdirSync(options.home, { recursive: true });
  const token = tokenOf(options.home);
  await using undo = new AsyncDisposableStack();
  const owner = await own(token, options.home);
  undo.defer(() => void owner.close());
  const remembered = recall(options.home);
  const block = await suitable(() => claim(spawner, token, subnet, remembered, resolvers));
  const networks = await suitable(() => start());
  undo.move();
  log.info({ block: describeBlock(block), table: tableOf(token) }, "sandbox networks are open");
  return networks;

  async function start(): Promise<Networks> {
    if (await enableForwarding()) log.warn("switched on net.ipv4.ip_forward for sandbox networks; it stays on");
    const perSecond = options.dns?.perSecond ?? DEFAULT_DNS_PER_SECOND;
    const dnsRate = { perSecond, burst: perSecond * DNS_BURST_SECONDS };
    const maxConnections = options.maxConnections ?? MAX_CONNECTIONS_PER_SANDBOX;
    const rules = { token, block, deniedCidrs, dnsPort: remembered.dnsPort ?? 0, interceptPort: 0, tunnelPort: 0, dnsRate, maxConnections };
    let reader: DenialReader | undefined;
    const denials: Denials | undefined =
      options.onDenied === undefined
        ? undefined
        : openDenials({
            spawner,
            log,
            deniedCidrs,
            maxConnections,
            dnsPerSecond: perSecond,
            gatewayAddress: gatewayOf(block),
            fenceAt: (address) => slots.fenceAt(address),
            fenceOn: (veth) => slots.fenceOn(veth),
            onDenied: options.onDenied,
            now: Date.now,
          });
    const slots: Slots = new Slots({
      token,
      block,
      spawner,
      log,
      mtuBytes: await uplinkMtuBytes(spawner),
      poolSize: options.poolSize ?? DEFAULT_POOL_SIZE,
      homeText: () => homeText({ ...rules, logGroup: reader?.group }),
      onCounted: (counts) => denials?.counted(counts),
      onRules: async () => intercept?.started(),
      onPolicy: async (fence) => void (await Promise.all([dns.setPolicy(fence), fence.usesThread ? intercept?.check(fence.slot.guestAddress) : undefined])),
      onGone(fence) {
        dns.forget(fence);
        if (fence.usesThread) intercept?.forget(fence.slot.guestAddress);
      },
    });
    const isOpen = (address: string): boolean => isOpenable({ address, ttlSeconds: 0 });
    const tunnels = openTunnels({
      fenceAt: (address) => slots.fenceAt(address),
      resolve: (name) => resolveName(resolvers, name),
      isOpenable: (address) => isOpen(address) && !ownAddresses().has(address),
      proxyCidrs,
      authorities: options.rules?.authorities ?? "",
      unseal: (sealed) => options.rules?.proxyPassword(sealed),
    });
    const route = openHostRoutes({ fenceAt: (address) => slots.fenceAt(address), resolvers, isOpenable: isOpen, proxyOf: tunnels.proxyOf });
    const intercept: Intercept | undefined =
      options.rules === undefined
        ? undefined
        : interceptFor({
            supply: options.rules,
            address: gatewayOf(block),
            ports: { port: remembered.interceptPort ?? 0, tunnelPort: remembered.tunnelPort ?? 0 },
            fenceAt: (address) => slots.fenceAt(address),
            route,
            tunnels,
            onNote: (fence, note) => denials?.rules(fence, note),
            async onPorts({ port, tunnelPort }) {
              Object.assign(rules, { interceptPort: port, tunnelPort });
              await slots.renewHome();
              keepPorts();
            },
            log,
          });
    undo.defer(() => intercept?.close());
    const onPort = (port: number): void => {
      rules.dnsPort = port;
      void slots.renewHome().catch((error: unknown) => log.error({ err: error }, "the firewall still names the old port of the sandboxes' DNS"));
    };
    const dns: DnsThread<Fence> = await openDnsThread<Fence>({
      address: gatewayOf(block),
      port: rules.dnsPort,
      upstreams: options.dns?.upstreams,
      rate: dnsRate,
      closed: [...neverOpened, ...deniedCidrs, block],
      proxyOf: async ({ policy }) => (policy.proxy === undefined ? undefined : tunnels.proxyOf(policy.proxy)),
      log,
      clients: () => slots.fences(),
      resolved: (fence, name, found) => slots.resolved(fence, name, found.filter(isOpenable)),
      onReport: (fence, report) => denials?.names(fence, report),
      onPort,
    });
    undo.defer(() => dns.close());
    rules.dnsPort = dns.port;
    if (denials !== undefined) {
      const onGroup = (): void =>
        void slots.renewHome().catch((error: unknown) => log.error({ err: error }, "the firewall still names the old group of denied packets"));
      reader = await openDenialReader({ seed: Number.parseInt(token, 16) % 0x1_0000, log, onNoted: denials.packet, onGroup }).catch(unlogged);
    }
    const close = (): void => {
      reader?.close();
      denials?.close();
    };
    undo.defer(close);
    await slots.open().catch(async (error: unknown) => {
      if (reader === undefined) throw error;
      // A kernel without nft_log accepts the same rules without the log.
      reader.close();
      reader = undefined;
      await slots.open();
      unlogged(error);
    });
    keepPorts();
    void blockedForwarding(spawner).then(
      (blockers) => {
        for (const { says, fix } of blockers) log.warn({ fix }, says);
      },
      (error: unknown) => log.warn({ err: error }, "cannot determine whether another firewall blocks sandbox traffic"),
    );
    return assemble(slots, dns, { intercept, tunnels }, close, owner);

    function keepPorts(): void {
      const kept = { ...remembered, block: formatCidr(block), dnsPort: dns.port };
      const { interceptPort, tunnelPort } = rules;
      try {
        remember(options.home, { ...kept, ...(interceptPort === 0 ? {} : { interceptPort }), ...(tunnelPort === 0 ? {} : { tunnelPort }) });
      } catch (error) {
        // The file only stores a preference, and a node must start and delete sandboxes even on a full disk.
        if (!isDiskFull(error)) throw error;
      }
    }
  }

  function unlogged(error: unknown): undefined {
    const fix = "apt-get install tcpdump; modprobe nfnetlink_log nft_log";
    log.warn({ err: error, fix }, "denied connections of sandboxes cannot be logged on this host; they are denied nevertheless");
  }

  /** Says whether an address may be opened. A name that points at a closed range opens nothing, even after the range is opened. */
  function isOpenable({ address }: Found): boolean {
    const value = parseAddress(address) ?? 0;
    return ![...neverOpened, ...deniedCidrs, block].some((cidr) => contains(cidr, value));
  }

  function assemble(
    slots: Slots,
    dns: DnsThread<Fence>,
    { intercept, tunnels }: { readonly intercept: Intercept | undefined; readonly tunnels: Tunnels },
    closeLog: () => void,
    ownerSocket: Server,
  ): Networks {
    return {
      attach: (policy) => slots.attach(policy),
      setPolicy: (slot, policy) => slots.setPolicy(slot, policy),
      detach: (slot) => slots.detach(slot),
      adopt: (slot, policy) => slots.adopt(slot, policy),
      orphans: () => slots.orphans(),
      removeOrphan: (netns) => slots.removeOrphan(netns),
      restoreGuestSide: (slot) => slots.restoreGuestSide(slot),
      admitProxy: (proxy) => tunnels.admit(proxy),
      valuesChanged: () => intercept?.changed(),
      async close(how = {}) {
        const { empty } = await slots.close(how.everything === true);
        await Promise.all([dns.close(), intercept?.close()]);
        closeLog();
        if (empty) await releaseBlock(spawner, block);
        await new Promise<void>((done) => ownerSocket.close(() => done()));
      },
    };
  }
}

/** Makes sure that one process serves a home's networks, since two would assign the same addresses. */
async function own(token: string, home: string): Promise<Server> {
  const owner = await claimName(ownerName(token));
  return (
    owner ?? fail("HOST_UNSUITABLE", `another process serves the networks of ${home} (it holds the abstract socket @${ownerName(token)}); stop that node first`)
  );
}

async function claim(spawner: Spawner, token: string, subnet: Cidr, remembered: Remembered, resolvers: Resolvers): Promise<Cidr> {
  await spawner.check(["nft", "--version"]);
  await spawner.check(["ip", "-V"]);
  const avoid = (await resolvers.current()).map(({ address }) => address);
  return claimBlock(spawner, { token, subnet, last: parseCidr(remembered.block ?? ""), avoid });
}

/** Reports every refusal of the host while networks are opened as HOST_UNSUITABLE, with the program's own message. */
async function suitable<T>(step: () => Promise<T>): Promise<T> {
  try {
    return await step();
  } catch (error) {
    const failure = asFailure(error);
    if (failure.name === "HOST_UNSUITABLE" || failure.name === "SETTING_INVALID") throw failure;
    throw new Failure("HOST_UNSUITABLE", `sandbox networks cannot be opened: ${failure.message}; \`svc doctor\` names what is missing`, { cause: error });
  }
}

function cidrSetting(name: string, text: string): Cidr {
  return parseCidr(text) ?? fail("SETTING_INVALID", `${name}: "${text}" is not an IPv4 block; write it as 10.200.0.0/13, with no bits set beyond the prefix`);
}

const memoryPath = (home: string): string => join(home, "network.json");

function recall(home: string): Remembered {
  try {
    return JSON.parse(readFileSync(memoryPath(home), "utf8")) as Remembered;
  } catch {
    return {}; // A first start, or a file cut short by a crash: both only lose the preference.
  }
}

function remember(home: string, what: Remembered): void {
  writeFileSync(`${memoryPath(home)}.new`, `${JSON.stringify(what)}\n`, { mode: 0o600 });
  renameSync(`${memoryPath(home)}.new`, memoryPath(home));
}
