// The tenant whose keys a client's are: a master without tenants would ignore it.
import { Failure, fail } from "@svc/contract/failures.ts";
import type { Connections } from "./connections.ts";
import { refusal } from "./refusal.ts";

/** @throws SETTING_INVALID where the master has one keyspace for all: what is done to this tenant's keys would be done to everybody's. */
export async function checkTenant(calls: Pick<Connections, "call">, tenant: string): Promise<void> {
  if (tenant === "" || tenant === "default") return;
  const answer = await calls.call("HasTenants").catch((error) => {
    // A master from before this was asked.
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
