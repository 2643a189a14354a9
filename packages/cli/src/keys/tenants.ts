// `svc tenants`: what tenants use, and their quotas.
import { type OutputFormat, outputFormat, printJSON, printTable } from "@svc/contract/table.ts";
import { amounts, type Quotas, type ShownTenant } from "@svc/contract/tenants.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { UsageError } from "../output/complain.ts";

type Printing = AccessOptions & { output?: OutputFormat };
/** `none` removes a limit. */
export type Limit = number | "none";
export type QuotaOptions = Printing & { sandboxes?: Limit; processors?: Limit; memory?: Limit; disk?: Limit; volumes?: Limit; creates?: Limit };

export function listTenants({ output, ...access }: Printing): Promise<number> {
  return withClient(access, async (client) => print(await client.tenants.list(), output));
}

export function showTenant(tenant: string, { output, ...access }: Printing): Promise<number> {
  return withClient(access, async (client) => print([await client.tenants.get(tenant)], output, true));
}

/** Changes the given limits, and leaves the others as they are. */
export function setTenant(tenant: string, { sandboxes, processors, memory, disk, volumes, creates, output, ...access }: QuotaOptions): Promise<number> {
  return withClient(access, async (client) => {
    const asked = { sandboxes, processors, memoryMB: memory, diskMB: disk, volumes, createsPerMinute: creates };
    const given = Object.entries(asked).filter(([, limit]) => limit !== undefined);
    if (given.length === 0) throw new UsageError("expected a limit, such as --sandboxes 10 or --memory none");
    const next: Record<string, number | undefined> = { ...(await client.tenants.get(tenant)).quotas };
    for (const [name, limit] of given) {
      if (typeof limit === "number") next[name] = limit;
      else delete next[name];
    }
    return print([await client.tenants.setQuotas(tenant, next as Quotas)], output, true);
  });
}

function print(tenants: readonly ShownTenant[], output: OutputFormat | undefined, isOne = false): number {
  if (outputFormat(output) === "json") printJSON(isOne ? tenants[0] : tenants);
  else {
    const cell = (used: number, limit: number | undefined) => (limit === undefined ? String(used) : `${used}/${limit}`);
    printTable(
      ["TENANT", "SANDBOXES", "PROCESSORS", "MEMORY MB", "DISK MB", "VOLUMES", "CREATES/MINUTE"],
      tenants.map(({ tenant, quotas, used }) => [
        tenant,
        ...[...amounts, "volumes" as const].map((amount) => cell(used[amount], quotas[amount])),
        quotas.createsPerMinute === undefined ? "" : String(quotas.createsPerMinute),
      ]),
    );
  }
  return 0;
}
