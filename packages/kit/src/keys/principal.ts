// The principal of a request: the deployment itself, or a tenant through a named key, with a role.
import { fail } from "@svc/contract/failures.ts";
import { mayDo, roleFor } from "@svc/contract/key-access.ts";
import { DEPLOYMENT_TENANT, type Role, roles, tenantName } from "@svc/contract/keys.ts";

export type TenantPrincipal = {
  readonly kind: "tenant";
  readonly tenant: string;
  readonly role: Role;
  readonly keyID: string;
  /** True if a gateway has checked the key, and this server does what the gateway asks for it. */
  readonly isRelayed: boolean;
};
export type Principal = { readonly kind: "deployment" } | TenantPrincipal;

export const DEPLOYMENT: Principal = { kind: "deployment" };

/**
 * With the deployment's own key, this header restricts a request to what one tenant may do: TENANT/ROLE/KEY-ID. Gateways send it to nodes,
 * which therefore need no named keys. With any other key it has no effect.
 */
export const ACTING_FOR_HEADER = "svc-acting-for";

export const actingFor = ({ tenant, role, keyID }: TenantPrincipal): string => `${tenant}/${role}/${keyID}`;

/** @throws INVALID_REQUEST: a header that cannot be read must never widen what a request may do. */
export function principalOf(header: unknown): Principal {
  if (header === undefined) return DEPLOYMENT;
  const [tenant = "", role, keyID = "", ...rest] = String(header).split("/");
  const known = roles.find((each) => each === role);
  if (!tenantName.safeParse(tenant).success || known === undefined || !/^[0-9a-f-]{1,64}$/.test(keyID) || rest.length > 0)
    return fail("INVALID_REQUEST", `${ACTING_FOR_HEADER}: expected TENANT/ROLE/KEY-ID`);
  return { kind: "tenant", tenant, role: known, keyID, isRelayed: true };
}

/** Returns the tenant that what this request makes belongs to; undefined: the deployment itself. */
export function tenantOf(principal: Principal): string | undefined {
  return principal.kind === "tenant" ? principal.tenant : undefined;
}

/** Returns true if the principal may see what belongs to this tenant. */
export function sees(principal: Principal, tenant: string | undefined): boolean {
  return principal.kind === "deployment" || principal.tenant === tenant;
}

export const shownTenant = (principal: Principal): string => (principal.kind === "tenant" ? principal.tenant : DEPLOYMENT_TENANT);

/** @throws ACCESS_DENIED. An operation that no named key may call is refused, so that a new one is closed until its row is written. */
export function authorize(principal: Principal, operation: string): void {
  if (principal.kind === "deployment") return;
  const least = roleFor(operation);
  if (least === undefined)
    fail("ACCESS_DENIED", `${operation}: needs the deployment's own key; a named key may not call it`, { details: { role: principal.role } });
  if (!mayDo(principal.role, least))
    fail("ACCESS_DENIED", `${operation}: needs a key with the role ${least}; this key has the role ${principal.role}`, {
      details: { role: principal.role, needed: least },
    });
}
