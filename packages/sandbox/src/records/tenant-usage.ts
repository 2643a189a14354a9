// The sandboxes of tenants as quotas count them: those that run in full, paused ones by their disk alone.
import type { OwnedSandbox } from "@svc/contract/cluster.ts";
import { NO_USAGE, type Usage } from "@svc/contract/tenants.ts";
import { type Charge, sum } from "@svc/kit/keys/tenant-quotas.ts";
import type { Limits } from "../runtime/runtime.ts";
import { isOwned, type Registry } from "./registry.ts";
import type { SandboxRecord } from "./state.ts";

const running = ({ cpuCount, memoryMB }: Limits): Usage => ({ sandboxes: 1, processors: cpuCount, memoryMB, diskMB: 0 });

export const chargeOf = (tenant: string | undefined, limits: Limits): Charge => ({ tenant, usage: { ...running(limits), diskMB: limits.diskSizeMB } });

/** A paused sandbox has its disk already. */
export const resumeChargeOf = (tenant: string | undefined, limits: Limits): Charge => ({ tenant, usage: running(limits) });

export function usedBy(registry: Pick<Registry, "all">, tenant: string): Usage {
  let used = NO_USAGE;
  for (const record of registry.all()) {
    if (!isOwned(record) || record.status.claim.tenant !== tenant) continue;
    used = sum(used, { ...NO_USAGE, diskMB: record.limits.diskSizeMB });
    if (record.status.state !== "paused") used = sum(used, running(record.limits));
  }
  return used;
}

/** Returns undefined for a sandbox of the deployment itself. */
export function ownedSandboxOf(record: SandboxRecord | undefined): OwnedSandbox | undefined {
  if (!isOwned(record) || record.status.claim.tenant === undefined) return undefined;
  const { cpuCount, memoryMB, diskSizeMB } = record.limits;
  return { tenant: record.status.claim.tenant, processors: cpuCount, memoryMB, diskMB: diskSizeMB };
}
