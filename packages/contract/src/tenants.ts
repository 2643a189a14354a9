// Tenants and their quotas: operations that set and show them, and the record that servers keep of each.
import { z } from "zod";
import { tenantName } from "./keys.ts";
import { operation } from "./operation.ts";

const most = z.number().int().min(0).max(1_000_000_000);

/** Absent: no limit. 0: none at all. */
export const quotas = z.object({
  sandboxes: most.optional().describe("Running sandboxes"),
  processors: z.number().min(0).max(1_000_000).optional().describe("Processors of running sandboxes"),
  memoryMB: most.optional().describe("Memory of running sandboxes"),
  diskMB: most.optional().describe("Disk of sandboxes, running and paused"),
  volumes: most.optional().describe("Volumes"),
  createsPerMinute: most.optional().describe("Creates and forked children a minute"),
});
export type Quotas = z.output<typeof quotas>;

/** The quotas of which a tenant's sandboxes use up an amount. */
export const amounts = ["sandboxes", "processors", "memoryMB", "diskMB"] as const;
export type Amount = (typeof amounts)[number];

export const usage = z.object({ sandboxes: z.number(), processors: z.number(), memoryMB: z.number(), diskMB: z.number() });
export type Usage = z.output<typeof usage>;
export const NO_USAGE: Usage = { sandboxes: 0, processors: 0, memoryMB: 0, diskMB: 0 };

export const tenantRecord = z.looseObject({ version: z.literal(1), tenant: z.string(), quotas });
export type TenantRecord = z.output<typeof tenantRecord>;

export const shownTenant = z.object({ tenant: z.string(), quotas, used: usage.extend({ volumes: z.number().default(0) }) });
export type ShownTenant = z.output<typeof shownTenant>;

const onTenants = ["INVALID_REQUEST", "UNAUTHENTICATED", "ACCESS_DENIED", "ETCD_UNAVAILABLE"] as const;
const tenant = tenantName.describe("The tenant's name");

export const listTenants = operation({
  name: "listTenants",
  method: "GET",
  path: "/tenants",
  summary: "Lists the tenants that have keys or quotas, with what they use",
  input: z.object({}),
  output: z.array(shownTenant),
  success: 200,
  credential: "apiKey",
  failures: onTenants,
});

export const getTenant = operation({
  name: "getTenant",
  method: "GET",
  path: "/tenants/{tenant}",
  summary: "One tenant's quotas, and what it uses",
  input: z.object({ tenant }),
  output: shownTenant,
  success: 200,
  credential: "apiKey",
  failures: onTenants,
});

export const setTenantQuotas = operation({
  name: "setTenantQuotas",
  method: "PUT",
  path: "/tenants/{tenant}",
  summary: "Replaces a tenant's quotas; what runs already goes on, even above them",
  input: z.object({ tenant, quotas }),
  output: shownTenant,
  success: 200,
  credential: "apiKey",
  failures: [...onTenants, "DISK_FULL"],
});

export const tenantOperations = { listTenants, getTenant, setTenantQuotas } as const;
