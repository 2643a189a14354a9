// Builds the parts that account usage: ledger, meter, metrics by tenant, the operation that shows the sums, and their part of events.
import type { getUsage, UsageAmounts } from "@svc/contract/usage.ts";
import type { Durability } from "@svc/kit/database.ts";
import { tenantOf } from "@svc/kit/keys/principal.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Metrics } from "@svc/kit/metrics.ts";
import type { Handlers } from "@svc/kit/serve.ts";
import type { Checkpoints } from "../records/checkpoints.ts";
import { isOwned, type Registry } from "../records/registry.ts";
import type { RuntimeHandle, Usage } from "../runtime/runtime.ts";
import { type Meter, type MeteredSandbox, openMeter } from "./meter.ts";
import { HOUR_MS, openUsageLedger } from "./usage-ledger.ts";

export type UsageHandlers = Handlers<{ readonly getUsage: typeof getUsage }>;

export type UsageParts = {
  readonly path: string;
  readonly keptMs?: number | undefined;
  readonly durability: Durability;
  readonly registry: Pick<Registry, "get" | "all">;
  readonly checkpoints: Pick<Checkpoints, "find">;
  readonly measure: (handle: RuntimeHandle) => Promise<Usage>;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly wallMs: () => number;
};

export type MeteredUsage = {
  readonly meter: Meter;
  readonly handlers: UsageHandlers;
  /** Returns what an event says about usage. Never throws. */
  onEvent(type: string, sandboxID: string | undefined): Readonly<Record<string, number>>;
  close(): Promise<void>;
};

const KEPT_MS = 92 * 24 * HOUR_MS;
/** Further tenants are counted together, so that a metric has a bounded number of series. */
const MAX_TENANTS = 200;
const OTHER_TENANTS = "other";
/** The events after which a sandbox runs, or has stopped running, with other counters than before. */
const BEGINNINGS: readonly string[] = ["sandbox.created", "sandbox.resumed", "sandbox.paused"];

export function openUsage({ path, keptMs = KEPT_MS, durability, registry, checkpoints, measure, metrics, log, wallMs }: UsageParts): MeteredUsage {
  const ledger = openUsageLedger({ path, durability, keptMs, log, wallMs });
  const count = openTenantCounters(metrics);

  function find(sandboxID: string): MeteredSandbox | undefined {
    const status = registry.get(sandboxID)?.status;
    if (status?.state === "running") return { state: "running", handle: status.handle, claim: status.claim };
    if (status?.state === "paused") return { state: "paused", checkpointID: status.kept.checkpointID, claim: status.claim };
    // A paused sandbox that is being ended has been accounted up to some moment before.
    if (status?.state !== "killing" || status.handle !== undefined || status.claim === undefined || status.kept === undefined) return undefined;
    return { state: "paused", checkpointID: status.kept.checkpointID, claim: status.claim };
  }

  const meter = openMeter({
    ledger,
    find,
    *paused() {
      for (const { sandboxID, status } of registry.all()) if (status.state === "paused") yield sandboxID;
    },
    isOwned: (sandboxID) => isOwned(registry.get(sandboxID)),
    measure,
    checkpointBytes: async (checkpointID) => (await checkpoints.find(checkpointID)).sizeBytes,
    onUsed: count,
    wallMs,
  });

  return {
    meter,
    handlers: {
      getUsage({ from, to, by, label, after, limit }, { principal }) {
        const fromMs = hourOf(from === undefined ? monthOf(wallMs()) : Date.parse(from));
        const toMs = hourOf((to === undefined ? wallMs() : Date.parse(to)) + HOUR_MS - 1);
        const rows = ledger.rows({ fromMs, toMs, by, label, tenant: tenantOf(principal), after, limit: limit + 1 });
        const shown = rows.slice(0, limit);
        const last = shown.at(-1);
        return {
          from: new Date(fromMs).toISOString(),
          to: new Date(toMs).toISOString(),
          rows: shown,
          ...(rows.length > limit && last !== undefined ? { next: last.value } : {}),
          missingNodes: [],
        };
      },
    },
    onEvent(type, sandboxID) {
      if (sandboxID === undefined) return {};
      if (BEGINNINGS.includes(type)) void meter.read(sandboxID);
      if (type !== "sandbox.ended") return {};
      try {
        return rounded(meter.ended(sandboxID));
      } catch (error) {
        log.error({ err: error, sandboxID }, "the usage of an ended sandbox could not be read");
        return {};
      }
    },
    async close() {
      meter.close();
    },
  };
}

const hourOf = (ms: number): number => Math.floor(ms / HOUR_MS) * HOUR_MS;

function monthOf(ms: number): number {
  const now = new Date(ms);
  return Date.UTC(now.getUTCFullYear(), now.getUTCMonth());
}

function rounded(amounts: UsageAmounts): Readonly<Record<string, number>> {
  return Object.fromEntries(Object.entries(amounts).map(([name, amount]) => [name, Math.round(amount * 1000) / 1000]));
}

function openTenantCounters(metrics: Metrics): (tenant: string, amounts: Partial<UsageAmounts>) => void {
  const counter = (name: `svc_${string}_total`, help: string) => metrics.counter(name, help, ["tenant"]);
  const counters = {
    cpuSeconds: counter("svc_node_usage_cpu_seconds_total", "Processor time that sandboxes of a tenant used"),
    memoryGiBSeconds: counter("svc_node_usage_memory_gib_seconds_total", "Memory that sandboxes of a tenant used, times the time"),
    diskGiBSeconds: counter("svc_node_usage_disk_gib_seconds_total", "Disk that sandboxes of a tenant used, running and paused, times the time"),
    networkInBytes: counter("svc_node_usage_network_in_bytes_total", "Bytes into sandboxes of a tenant"),
    networkOutBytes: counter("svc_node_usage_network_out_bytes_total", "Bytes out of sandboxes of a tenant"),
  };
  const tenants = new Set<string>();
  return (tenant, amounts) => {
    if (tenants.size < MAX_TENANTS) tenants.add(tenant);
    const labels = { tenant: tenants.has(tenant) ? tenant : OTHER_TENANTS };
    for (const [name, each] of Object.entries(counters)) each.inc(labels, amounts[name as keyof typeof counters] ?? 0);
  };
}
