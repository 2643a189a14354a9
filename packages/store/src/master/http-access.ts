// Access control on the master's HTTP: the paths that need no key, and the requests that a tenant's key may make.

import type { Answer, Request } from "@svc/kit/http/exchange.ts";
import type { Denials } from "../access/denials.ts";
import { type AccessKeys, bearerOf } from "../access/keys.ts";
import { codes } from "../rpc/codes.ts";
import { json } from "./api.ts";
import { searchOf } from "./query.ts";

/** The paths that browsers, load balancers, probes and scrapers request without a key; none of them names a key of the store. */
const openPaths = new Set(["/", "/health", "/version", "/metrics", "/metrics/summary", "/role", "/leader"]);
const tenantRoutes = new Set([
  "GET /query_key",
  "GET /batch_query_keys",
  "GET /get_all_keys",
  "GET /api/v1/objects",
  "POST /api/v1/remove_all",
  "GET /api/v1/tenant_quotas",
  "GET /ha_status",
  "GET /kv_events/status",
]);

export type HttpAccess = { readonly keys: AccessKeys; readonly denials: Denials };

const refused = (status: number, message: string): Answer => json({ success: false, error_code: codes.ILLEGAL_CLIENT, error_message: message }, status);
const percentEncoded = (bytes: string) => Buffer.from(bytes, "latin1").toString("hex").replaceAll(/../g, "%$&");

/** Returns the query string with the caller's tenant applied, or a refusal. */
export function admit({ keys, denials }: HttpAccess, { method, authorization, peer }: Request, path: string, search: string): string | Answer {
  if (openPaths.has(path)) return search;
  const key = keys.find(bearerOf(authorization));
  if (key === undefined) {
    denials.note(peer, "an HTTP request without a token of this master's was refused");
    const answer = refused(401, "expected the header Authorization: Bearer TOKEN with a token of this master's (store.access_file)");
    return { ...answer, headers: { "WWW-Authenticate": "Bearer" } };
  }
  if (key.tenant === undefined) return search;
  const named = searchOf(search, "tenant_id") ?? "";
  if (!tenantRoutes.has(`${method} ${path}`)) return refused(403, "this key is for one tenant's keys: the path needs a key without a tenant");
  if (named !== "" && named !== key.tenant) return refused(403, "this key is for another tenant than tenant_id says");
  // Prepending overrides any other tenant_id, since the first parameter of a name counts.
  return `tenant_id=${percentEncoded(key.tenant)}&${search}`;
}
