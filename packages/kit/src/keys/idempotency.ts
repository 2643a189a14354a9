// Idempotency keys of tenants: the same text from two tenants names two creates.
import { createHash } from "node:crypto";
import type { Principal } from "./principal.ts";

/** Only the server that checked the key changes the text; what a gateway relays is changed already. */
export function ownIdempotencyKey(principal: Principal, key: string | undefined): string | undefined {
  if (key === undefined || principal.kind === "deployment" || principal.isRelayed) return key;
  return createHash("sha256").update(`${principal.tenant}\n${key}`).digest("hex");
}
