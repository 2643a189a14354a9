// Accounts what each sandbox uses between two readings of its counters, in the hours in which it was used.
import { readFileSync } from "node:fs";
import { DEPLOYMENT_TENANT } from "@svc/contract/keys.ts";
import type { UsageAmounts } from "@svc/contract/usage.ts";
import type { Claim } from "../records/state.ts";
import type { RuntimeHandle, Usage } from "../runtime/runtime.ts";
import { HOUR_MS, type Owner, type Reading, type UsageLedger } from "./usage-ledger.ts";

/*
 *  created      sample      sample     paused                resumed     sample     ended
 *     ├────────────┼───────────┼──────────┼─────────────────────┼───────────┼─────────┤
 *       processor, memory, disk, network    disk of checkpoint    processor, memory, …
 *
 * Each bar is a reading, kept in the ledger beside the sums up to it: a node that was killed goes on from its last one, because counters of
 * processor and network of sandboxes that survive went on as well.
 */

export type MeteredSandbox =
  | { readonly state: "running"; readonly handle: RuntimeHandle; readonly claim: Claim }
  | { readonly state: "paused"; readonly checkpointID: string; readonly claim: Claim };

export type MeterParts = {
  readonly ledger: UsageLedger;
  /** Returns undefined for a sandbox that no client owns, or that is neither running nor paused. */
  find(sandboxID: string): MeteredSandbox | undefined;
  paused(): Iterable<string>;
  isOwned(sandboxID: string): boolean;
  measure(handle: RuntimeHandle): Promise<Usage>;
  checkpointBytes(checkpointID: string): Promise<number>;
  /** Called with what a sandbox of this tenant used. */
  readonly onUsed: (tenant: string, amounts: Partial<UsageAmounts>) => void;
  readonly wallMs: () => number;
};

export interface Meter {
  /** Takes the counters that the regular sample has read. */
  sampled(sandboxID: string, handle: RuntimeHandle, usage: Usage): void;
  /** Reads the counters now: at the begin of a run, and before its end. Never throws. */
  read(sandboxID: string): Promise<void>;
  /** Accounts for the last time, and returns the sums of the sandbox's whole life on this node. */
  ended(sandboxID: string): UsageAmounts;
  start(): void;
  close(): void;
}

const GIB = 1024 ** 3;
/** Readings are at most this old in the file; with the interval of samples this bounds what a kill -9 loses of a sandbox that ends meanwhile. */
export const FLUSH_MS = 5_000;
/** Paused sandboxes are accounted at least this far apart, and a bounded number at a time. */
const PAUSED_MS = 60_000;
const PAUSED_PER_TICK = 200;
const PRUNE_MS = HOUR_MS;

export function openMeter({ ledger, find, paused, isOwned, measure, checkpointBytes, onUsed, wallMs }: MeterParts): Meter {
  let timer: NodeJS.Timeout | undefined;
  let prunedAtMs = wallMs();

  /** Adds amounts of a time to its hours, each by its part of the time. */
  function spread(sandboxID: string, owner: Owner, fromMs: number, toMs: number, amounts: Partial<UsageAmounts>): void {
    onUsed(owner.tenant, amounts);
    const firstHour = hourOf(fromMs);
    if (toMs <= fromMs || hourOf(toMs) === firstHour) {
      ledger.add(sandboxID, hourOf(toMs), amounts);
      return;
    }
    for (let hour = firstHour; hour < toMs; hour += HOUR_MS) {
      const share = (Math.min(toMs, hour + HOUR_MS) - Math.max(fromMs, hour)) / (toMs - fromMs);
      ledger.add(sandboxID, hour, Object.fromEntries(Object.entries(amounts).map(([name, amount]) => [name, amount * share])));
    }
  }

  function account(sandboxID: string, now: Reading, claim: Claim): void {
    const owner: Owner = { keyID: claim.keyID ?? "", tenant: claim.tenant ?? DEPLOYMENT_TENANT, metadata: claim.metadata };
    const base = ledger.readingOf(sandboxID);
    // Readings of one moment may arrive in another order, and a clock may be set back.
    if (base !== undefined && base.life === now.life && base.atMs > now.atMs && now.cpuNs <= base.cpuNs) return;
    ledger.setReading(sandboxID, now, owner);
    if (base === undefined) return;
    const seconds = Math.max(0, now.atMs - base.atMs) / 1000;
    if (base.life === PAUSED) {
      spread(sandboxID, owner, base.atMs, now.atMs, { pausedSeconds: seconds, diskGiBSeconds: (base.diskBytes / GIB) * seconds });
      // The counters of a new run begin at zero; those of an interface belong to the network slot, which others had before.
      if (now.life !== PAUSED && now.cpuNs > 0) spread(sandboxID, owner, now.atMs, now.atMs, { cpuSeconds: now.cpuNs / 1e9 });
      return;
    }
    if (now.life === PAUSED) {
      // The checkpoint is written between the last reading of a run and the pause; that time has no usage but the disk's.
      spread(sandboxID, owner, base.atMs, now.atMs, { diskGiBSeconds: (base.diskBytes / GIB) * seconds });
      return;
    }
    if (base.life !== now.life) return;
    spread(sandboxID, owner, base.atMs, now.atMs, {
      cpuSeconds: Math.max(0, now.cpuNs - base.cpuNs) / 1e9,
      memoryGiBSeconds: ((base.memoryBytes + now.memoryBytes) / 2 / GIB) * seconds,
      diskGiBSeconds: ((base.diskBytes + now.diskBytes) / 2 / GIB) * seconds,
      networkInBytes: Math.max(0, now.inBytes - base.inBytes),
      networkOutBytes: Math.max(0, now.outBytes - base.outBytes),
      runningSeconds: seconds,
    });
  }

  function sampled(sandboxID: string, handle: RuntimeHandle, { cpuNs, memoryBytes, diskBytes }: Usage): void {
    const found = find(sandboxID);
    if (found?.state !== "running" || lifeOf(found.handle) !== lifeOf(handle)) return;
    // A cgroup that is being removed reads as zeros.
    if (cpuNs === 0 && memoryBytes === 0) return;
    account(sandboxID, { life: lifeOf(handle), cpuNs, memoryBytes, diskBytes, ...trafficOf(handle), atMs: wallMs() }, found.claim);
  }

  async function read(sandboxID: string): Promise<void> {
    const found = find(sandboxID);
    if (found?.state === "running") {
      const usage = await measure(found.handle).catch(() => undefined);
      if (usage !== undefined) sampled(sandboxID, found.handle, usage);
    } else if (found?.state === "paused") {
      const diskBytes = ledger.readingOf(sandboxID)?.life === PAUSED ? undefined : await checkpointBytes(found.checkpointID).catch(() => 0);
      accountPaused(sandboxID, diskBytes);
    }
  }

  function accountPaused(sandboxID: string, diskBytes = ledger.readingOf(sandboxID)?.diskBytes ?? 0): void {
    const found = find(sandboxID);
    if (found?.state !== "paused") return;
    account(sandboxID, { life: PAUSED, cpuNs: 0, inBytes: 0, outBytes: 0, memoryBytes: 0, diskBytes, atMs: wallMs() }, found.claim);
  }

  async function tick(): Promise<void> {
    const now = wallMs();
    let left = PAUSED_PER_TICK;
    for (const sandboxID of [...paused()]) {
      const known = ledger.readingOf(sandboxID);
      if (known?.life === PAUSED && Math.abs(now - known.atMs) < PAUSED_MS) continue;
      if (left-- === 0) break;
      await read(sandboxID);
    }
    ledger.keepReadings(isOwned);
    ledger.flush();
    if (now - prunedAtMs < PRUNE_MS) return;
    prunedAtMs = now;
    ledger.prune();
  }

  return {
    sampled,
    read,
    ended(sandboxID) {
      accountPaused(sandboxID);
      return ledger.totals(sandboxID);
    },
    start() {
      timer ??= setInterval(() => void tick(), FLUSH_MS).unref();
    },
    close() {
      clearInterval(timer);
      ledger.close();
    },
  };
}

const PAUSED = "paused";
const hourOf = (ms: number): number => Math.floor(ms / HOUR_MS) * HOUR_MS;
const lifeOf = ({ pid, pidStartTicks }: RuntimeHandle): string => `${pid}:${pidStartTicks}`;

/** The host's end of the pair of interfaces sends what the sandbox receives. */
function trafficOf({ network }: RuntimeHandle): Pick<Reading, "inBytes" | "outBytes"> {
  if (network === undefined) return { inBytes: 0, outBytes: 0 };
  return { inBytes: counterOf(network.veth, "tx_bytes"), outBytes: counterOf(network.veth, "rx_bytes") };
}

function counterOf(veth: string, counter: string): number {
  try {
    return Number(readFileSync(`/sys/class/net/${veth}/statistics/${counter}`, "utf8"));
  } catch {
    return 0;
  }
}
