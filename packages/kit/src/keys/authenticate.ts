// Which key a request came with: the deployment's own, or a named one.
import { fail } from "@svc/contract/failures.ts";
import { spellingFor } from "@svc/contract/sdk-key.ts";
import type { FastifyReply, FastifyRequest } from "fastify";
import { sameSecret } from "../secret.ts";
import { clientOf } from "../serve-audit.ts";
import type { Keys } from "./keys.ts";
import { ACTING_FOR_HEADER, type Principal, principalOf } from "./principal.ts";

/** @throws UNAUTHENTICATED. */
export function authenticate(request: FastifyRequest, apiKey: string, keys: Keys | undefined): Principal {
  const given = request.headers["x-api-key"];
  if (given === undefined || given === "") fail("UNAUTHENTICATED", "the header X-API-Key is missing; send the deployment's API key in it");
  // Several headers of this name arrive joined by ", " and therefore match no key.
  if (sameSecret(String(given), spellingFor(String(given), apiKey))) return principalOf(request.headers[ACTING_FOR_HEADER]);
  if (keys !== undefined) return keys.authenticate(String(given), clientOf(request));
  return fail("UNAUTHENTICATED", "the API key in X-API-Key is not this deployment's");
}

/** Ends the answer if the key ends while the answer is a stream; one that has not begun is completed. */
export function endWithKey(keys: Keys, keyID: string, reply: FastifyReply): void {
  const { raw } = reply;
  const stop = keys.whileValid(keyID, () => {
    if (raw.headersSent) raw.destroy();
  });
  raw.once("close", stop);
}
