// Keys on the REST service: which paths need none, and what a tenant's key may ask.

import type { Denials } from "../access/denials.ts";
import { type AccessKeys, bearerOf } from "../access/keys.ts";
import type { Request } from "../http/request.ts";
import { misspeltTenant, searchOf } from "../master/query.ts";
import { Refused } from "./body.ts";

/** What browsers, probes and scrapers ask, who have no key. */
const openPaths = ["/", "/health", "/version", "/metrics"];
const objectPaths = ["/api/put", "/api/get/", "/api/exist/", "/api/remove/", "/api/remove_all"];

export type ServiceAccess = {
  readonly keys: AccessKeys;
  readonly denials: Denials;
  /** Of all objects that this service puts and gets. */
  readonly tenant: string;
};

/**
 * Every object of this service is its own tenant's, whatever a request says; one that names another must not act on these.
 *
 * @throws Refused (400)
 */
export function checkTenant(own: string, named: unknown): void {
  const name = own === "" ? "default" : own;
  if (named !== undefined && named !== "" && named !== name)
    throw new Refused(400, `This service's objects are tenant "${name}"'s (store_service.tenant_id): ask the service of the other tenant`);
}

/** @throws Refused (400) */
export function checkSearch(own: string, search: string): void {
  const misspelt = misspeltTenant(search);
  if (misspelt !== undefined) throw new Refused(400, `There is no parameter ${misspelt}: a tenant is named by tenant_id`);
  const named = searchOf(search, "tenant_id");
  checkTenant(own, named && Buffer.from(named, "latin1").toString());
}

/** @throws Refused (401, 403) */
export function checkKey({ keys, denials, tenant }: ServiceAccess, { authorization }: Request, path: string, peer: () => string): void {
  if (openPaths.includes(path)) return;
  const key = keys.find(bearerOf(authorization));
  if (key === undefined) {
    denials.note(peer(), "an HTTP request without a token of this service's was refused");
    throw new Refused(401, "Expected the header Authorization: Bearer TOKEN with a token of this service's (store_service.access_file)");
  }
  if (key.tenant === undefined) return;
  if (!objectPaths.includes(path)) throw new Refused(403, "This key is for one tenant's objects: the path needs a key without a tenant");
  if (key.tenant !== Buffer.from(tenant === "" ? "default" : tenant).toString("latin1"))
    throw new Refused(403, "This key is for another tenant than this service's (store_service.tenant_id)");
}
