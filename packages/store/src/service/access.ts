// Keys on the REST service: which paths need none, and what a tenant's key may ask.

import type { Denials } from "../access/denials.ts";
import { type AccessKeys, bearerOf } from "../access/keys.ts";
import type { Request } from "../http/request.ts";
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
