// Access control on the REST service: the paths that need no key, and the requests that a tenant's key may make.

import type { Request } from "@svc/kit/http/exchange.ts";
import type { Denials } from "../access/denials.ts";
import { type AccessKeys, bearerOf } from "../access/keys.ts";
import { misspeltTenant, searchNames, searchOf } from "../master/query.ts";
import { Refused } from "./body.ts";

/** The paths that browsers, probes and scrapers request without a key. */
const openPaths = ["/", "/health", "/version", "/metrics"];
const objectPaths = ["/api/put", "/api/get/", "/api/exist/", "/api/remove/", "/api/remove_all"];

export type ServiceAccess = {
  readonly keys: AccessKeys;
  readonly denials: Denials;
  /** The tenant of all objects that this service puts and gets. */
  readonly tenant: string;
};

/**
 * Every object of this service belongs to its own tenant, so a request that names another one must not act on it.
 *
 * @param names the names of the request's parameters
 * @param named the values of those named tenant_id
 * @throws Refused (400)
 */
export function checkTenant(own: string, names: readonly string[], named: readonly unknown[]): void {
  const misspelt = misspeltTenant(names);
  if (misspelt !== undefined) throw new Refused(400, `There is no parameter ${misspelt.slice(0, 100)}: a tenant is named by tenant_id`);
  const name = own === "" ? "default" : own;
  for (const each of named)
    if (each !== undefined && each !== null && each !== "" && each !== name)
      throw new Refused(400, `This service's objects are tenant "${name}"'s (store_service.tenant_id): ask the service of the other tenant`);
}

/** @throws Refused (400) */
export function checkSearch(own: string, search: string): void {
  const names = searchNames(search);
  const values = search
    .split("&")
    .flatMap((part) => (part.startsWith("tenant_id=") ? [Buffer.from(searchOf(part, "tenant_id") ?? "", "latin1").toString()] : []));
  checkTenant(own, names, values);
}

/** @throws Refused (401, 403) */
export function checkKey({ keys, denials, tenant }: ServiceAccess, { authorization, peer }: Request, path: string): void {
  if (openPaths.includes(path)) return;
  const key = keys.find(bearerOf(authorization));
  if (key === undefined) {
    denials.note(peer, "an HTTP request without a token of this service's was refused");
    throw new Refused(401, "Expected the header Authorization: Bearer TOKEN with a token of this service's (store_service.access_file)");
  }
  if (key.tenant === undefined) return;
  if (!objectPaths.includes(path)) throw new Refused(403, "This key is for one tenant's objects: the path needs a key without a tenant");
  if (key.tenant !== Buffer.from(tenant === "" ? "default" : tenant).toString("latin1"))
    throw new Refused(403, "This key is for another tenant than this service's (store_service.tenant_id)");
}
