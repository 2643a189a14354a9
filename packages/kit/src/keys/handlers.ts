// The handlers of operations on named keys, the same at a node and at a gateway. A tenant's administrator sees the keys of the tenant alone.
import { fail } from "@svc/contract/failures.ts";
import { mayDo } from "@svc/contract/key-access.ts";
import { type CreatedKey, DEPLOYMENT_TENANT, type KeyRecord, type keyOperations, type Role, type ShownKey } from "@svc/contract/keys.ts";
import type { ShownTenant, tenantOperations } from "@svc/contract/tenants.ts";
import type { Context, Handlers } from "../serve.ts";
import type { Keys, Made } from "./keys.ts";
import { type Principal, sees, shownTenant } from "./principal.ts";
import type { TenantQuotas } from "./tenant-quotas.ts";

/** E2B's spelling of a key: its prefix, and the number of characters after it. */
const PREFIX = "e2b_";
const VALUE_LENGTH = 40;
const MASKED_PREFIX = "";

/** Returns the number of volumes of each tenant that the principal sees; a tenant without volumes may be absent. */
export type CountVolumes = (context: Context) => Promise<ReadonlyMap<string, number>>;

export function apiKeyHandlers(
  given: Keys | undefined,
  quotas: Pick<TenantQuotas, "used">,
  countVolumes: CountVolumes,
): Handlers<typeof keyOperations & typeof tenantOperations> {
  const keys = given ?? fail("INTERNAL", "named keys are not open");

  async function shownTenants(tenants: readonly string[], context: Context): Promise<ShownTenant[]> {
    if (tenants.length === 0) return [];
    const volumes = await countVolumes(context);
    return tenants.map((tenant) => ({ tenant, quotas: keys.quotasOf(tenant) ?? {}, used: { ...quotas.used(tenant), volumes: volumes.get(tenant) ?? 0 } }));
  }
  const shownTenantOf = async (tenant: string, context: Context) => (await shownTenants([tenant], context))[0] as ShownTenant;

  function shown(record: KeyRecord): ShownKey {
    const lastUsedMs = keys.lastUsedMs(record.id);
    const mask = { prefix: PREFIX, valueLength: VALUE_LENGTH, maskedValuePrefix: MASKED_PREFIX, maskedValueSuffix: record.secrets[0]?.suffix ?? "" };
    return {
      id: record.id,
      name: record.name,
      mask,
      createdAt: timeOf(record.createdAtMs),
      createdBy: null,
      lastUsed: lastUsedMs === undefined ? null : timeOf(lastUsedMs),
      tenant: record.tenant,
      role: record.role,
      state: keys.stateOf(record),
      expiresAt: record.expiresAtMs === undefined ? null : timeOf(record.expiresAtMs),
      sourceAddresses: record.sourceAddresses ?? [],
    };
  }
  const created = ({ record, made }: Made): CreatedKey => ({ ...shown(record), key: made.key, apiKey: made.apiKey });
  const seen = (principal: Principal) => keys.all().filter(({ tenant }) => sees(principal, tenant));

  /** @throws KEY_NOT_FOUND; INVALID_REQUEST where several keys have the name. */
  function found(principal: Principal, asked: string): KeyRecord {
    const byID = keys.get(asked);
    if (byID !== undefined && sees(principal, byID.tenant)) return byID;
    const [one, ...more] = seen(principal).filter(({ name, revokedAtMs }) => name === asked && revokedAtMs === undefined);
    if (more.length > 0) fail("INVALID_REQUEST", `${more.length + 1} keys have the name '${asked}': name one by its id`);
    return one ?? fail("KEY_NOT_FOUND", `key '${asked}' was not found`);
  }

  return {
    async createKey({ name, tenant, role, expiresAt, sourceAddresses }, { principal }) {
      const own = principal.kind === "tenant" ? principal.tenant : undefined;
      if (own !== undefined && tenant !== undefined && tenant !== own)
        fail("ACCESS_DENIED", `this key belongs to tenant '${own}', and creates keys of that tenant alone; got tenant '${tenant}'`);
      const its = own ?? tenant ?? fail("INVALID_REQUEST", "tenant: expected the tenant that the key belongs to; only a named key has one by itself");
      const made = await keys.create({ name, tenant: its, role, expiresAtMs: endOf(expiresAt), sourceAddresses: sourceAddresses ?? undefined });
      return created(made);
    },
    listKeys: (_input, { principal }) => seen(principal).map(shown),
    getKey: ({ apiKeyID }, { principal }) => shown(found(principal, apiKeyID)),
    async updateKey({ apiKeyID, expiresAt, sourceAddresses, ...change }, { principal }) {
      const record = found(principal, apiKeyID);
      mayRaise(principal, change.role);
      const next = {
        ...(change.name === undefined ? {} : { name: change.name }),
        ...(change.role === undefined ? {} : { role: change.role }),
        ...(expiresAt === undefined ? {} : { expiresAtMs: endOf(expiresAt) }),
        ...(sourceAddresses === undefined ? {} : { sourceAddresses: sourceAddresses ?? undefined }),
      };
      return shown(await keys.update(record, next));
    },
    async deleteKey({ apiKeyID }, { principal }) {
      await keys.revoke(found(principal, apiKeyID));
      return undefined;
    },
    async rotateKey({ apiKeyID, overlapSeconds }, { principal }) {
      return created(await keys.rotate(found(principal, apiKeyID), overlapSeconds * 1000));
    },
    listTenants: (_input, context) => shownTenants(keys.tenants(), context),
    async getTenant({ tenant }, context) {
      if (!sees(context.principal, tenant)) fail("ACCESS_DENIED", `tenant '${tenant}' is not that of this key`);
      return shownTenantOf(tenant, context);
    },
    async setTenantQuotas({ tenant, quotas: next }, context) {
      await keys.setQuotas(tenant, next);
      return shownTenantOf(tenant, context);
    },
    listTeams(_input, { principal }) {
      const names = principal.kind === "tenant" ? [principal.tenant] : [DEPLOYMENT_TENANT, ...new Set(keys.all().map(({ tenant }) => tenant))];
      return names.map((name) => ({ teamID: name, name, apiKey: "", isDefault: name === shownTenant(principal) }));
    },
  };
}

function mayRaise(principal: Principal, role: Role | undefined): void {
  if (principal.kind === "tenant" && role !== undefined && !mayDo(principal.role, role))
    fail("ACCESS_DENIED", `this key may give no more than its own role, ${principal.role}`);
}

const timeOf = (atMs: number) => new Date(atMs).toISOString();

/** @throws INVALID_REQUEST for an end in the past. */
function endOf(expiresAt: string | null | undefined): number | undefined {
  if (expiresAt === null || expiresAt === undefined) return undefined;
  const atMs = Date.parse(expiresAt);
  if (atMs <= Date.now()) fail("INVALID_REQUEST", `expiresAt: expected a time in the future, got ${expiresAt}; to end a key now, revoke it`);
  return atMs;
}
