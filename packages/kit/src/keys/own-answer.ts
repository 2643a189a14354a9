// The last check of what a tenant is shown: whatever a handler returns, nothing of another tenant leaves the server.

import { fail } from "@svc/contract/failures.ts";
import { entryTokens, listsOf, ofOne } from "@svc/contract/key-access.ts";
import type { Operation } from "@svc/contract/operation.ts";
import type { Principal, TenantPrincipal } from "./principal.ts";

/** Checks the ids and names in the input of a tenant's request. @throws the failure with which an absent object is answered. */
export type Guard = (principal: TenantPrincipal, operation: Operation, input: Readonly<Record<string, unknown>>) => void | Promise<void>;

type Item = Readonly<Record<string, unknown>>;

/** Returns the answer without what belongs to others, and for a viewer without tokens. @throws NOT_FOUND failures for one object of another. */
export function ownAnswer(principal: Principal, { name }: Operation, output: unknown): unknown {
  if (principal.kind === "deployment") return output;
  const mine = ({ tenant }: Item) => tenant === principal.tenant;
  let own = output;
  if (listsOf.has(name)) own = (output as readonly Item[]).filter(mine);
  const one = ofOne.get(name);
  if (one !== undefined && !mine(output as Item)) fail(one.failure, `${one.what} '${String((output as Item)[one.id])}' was not found`);
  return principal.role === "viewer" ? withoutTokens(own) : own;
}

function withoutTokens(output: unknown): unknown {
  return JSON.parse(JSON.stringify(output, (member, value: unknown) => (entryTokens.includes(member) ? undefined : value)));
}
