// The client's operations on tenants and their quotas.
import type { Calls } from "./client-calls.ts";
import * as api from "./tenants.ts";

/** Every method throws Failure: ACCESS_DENIED for a named key that asks for another tenant, or that sets quotas. */
export class TenantClient {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  list(): Promise<api.ShownTenant[]> {
    return this.#calls.call(api.listTenants, {});
  }

  get(tenant: string): Promise<api.ShownTenant> {
    return this.#calls.call(api.getTenant, { tenant });
  }

  /** Replaces all quotas: the tenant has no limit where one is left out. */
  setQuotas(tenant: string, quotas: api.Quotas): Promise<api.ShownTenant> {
    return this.#calls.call(api.setTenantQuotas, { tenant, quotas });
  }
}
