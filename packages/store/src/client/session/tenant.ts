// Checks the client's tenant, since a master without tenants would silently ignore it.
import { Failure, fail } from "@svc/contract/failures.ts";
import type { Connections } from "./connections.ts";
import { refusal } from "./refusal.ts";

/** @throws SETTING_INVALID where the master has a single keyspace: operations on this tenant's keys would affect everyone's. */
export async function checkTenant(calls: Pick<Connections, "call">, tenant: string): Promise<void> {
  if (tenant === "" || tenant === "default") return;
  const answer = await calls.call("HasTenants").catch((error) => {
    // An earlier release of the master does not have this call.
    if (error instanceof Failure && error.name === "INVALID_REQUEST") return undefined;
    throw error;
  });
  if (answer === undefined) return;
  if (!answer.ok) throw refusal(answer.code, "asking whether the master knows tenants");
  if (!answer.value)
    fail(
      "SETTING_INVALID",
      `tenant ${JSON.stringify(tenant)}: tenants are off at this master, so that every key is in the same one: leave the tenant out, or start masters with --enable_multi_tenants`,
    );
}
