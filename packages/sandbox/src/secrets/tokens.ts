// Identity tokens: short-lived JWTs that say which sandbox a request comes from, and the public key by which others check them.
import { createPublicKey, randomUUID } from "node:crypto";
import type { IdentityToken } from "@svc/contract/secrets.ts";
import { calculateJwkThumbprint, exportJWK, type JSONWebKeySet, type JWK, SignJWT } from "jose";
import { derivedKey } from "./authority.ts";

const ALGORITHM = "ES256";
/** A token that leaves the node is valid for between this time less REUSED_MS, and this time. */
export const TOKEN_SECONDS = 300;
/** A token is used again for this long, since signing one per request would cost more than the request. */
export const REUSED_MS = 60_000;
const MAX_TOKENS = 4096;

export interface Tokens {
  /** Returns a token for a sandbox, and until when it may be used again. */
  token(sandboxID: string, definition: IdentityToken): Promise<{ token: string; untilMs: number }>;
  readonly keySet: JSONWebKeySet;
  readonly issuer: () => string;
}

export async function openTokens(deploymentKey: string, issuer: () => string, now: () => number): Promise<Tokens> {
  const key = derivedKey(deploymentKey, "identity-token");
  const jwk: JWK = await exportJWK(createPublicKey(key));
  const kid = await calculateJwkThumbprint(jwk);
  const made = new Map<string, { token: string; untilMs: number }>();
  return {
    issuer,
    keySet: { keys: [{ ...jwk, kid, alg: ALGORITHM, use: "sig" }] },
    async token(sandboxID, { audience }) {
      const name = JSON.stringify([sandboxID, audience]);
      const known = made.get(name);
      if (known !== undefined && known.untilMs > now()) return known;
      const at = Math.floor(now() / 1000);
      const token = await new SignJWT({})
        .setProtectedHeader({ alg: ALGORITHM, kid, typ: "JWT" })
        .setIssuer(issuer())
        .setAudience(audience)
        .setSubject(sandboxID)
        .setIssuedAt(at)
        .setNotBefore(at)
        .setExpirationTime(at + TOKEN_SECONDS)
        .setJti(randomUUID())
        .sign(key);
      const fresh = { token, untilMs: now() + REUSED_MS };
      made.delete(name);
      made.set(name, fresh);
      for (const oldest of made.keys()) {
        if (made.size <= MAX_TOKENS) break;
        made.delete(oldest);
      }
      return fresh;
    },
  };
}
