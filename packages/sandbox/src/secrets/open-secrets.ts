// Secrets, the authority and identity tokens of a node, and the headers that they make for a request of a sandbox.
import { join } from "node:path";
import { asFailure, Failure } from "@svc/contract/failures.ts";
import type { IdentityToken } from "@svc/contract/secrets.ts";
import type { HeaderTemplate } from "../egress/host-rules.ts";
import { filled, referencesOf } from "../egress/host-rules.ts";
import { type Authority, openAuthority } from "./authority.ts";
import { seal, unseal } from "./seal.ts";
import { openSecretStore, type SecretStore } from "./store.ts";
import { openTokens, type Tokens } from "./tokens.ts";

/** The headers of a request with their values, and until when they may be used again. */
export type FilledHeaders = { readonly headers: readonly (readonly [string, string])[]; readonly untilMs: number };

/** A sandbox as rules know it: its id, its tenant, and the identity tokens that its create named. */
export type Bearer = { readonly sandboxID: string; readonly tenant: string | undefined; readonly tokens: Readonly<Record<string, IdentityToken>> };

export interface Secrets {
  readonly store: SecretStore;
  readonly authority: () => Authority;
  readonly tokens: Tokens;
  /** Encrypts the password of an egress proxy for a record; the second returns undefined for one of another deployment. */
  sealPassword(password: string): string;
  unsealPassword(sealed: string): string | undefined;
  /** @throws SECRET_NOT_FOUND, SECRETS_DAMAGED, INVALID_REQUEST with the header and the name. */
  fill(templates: readonly HeaderTemplate[], bearer: Bearer): Promise<FilledHeaders>;
}

export type SecretsParts = {
  readonly home: string;
  readonly deploymentKey: string;
  readonly seed: string;
  readonly maxSecrets: number;
  readonly issuer: () => string;
  readonly onChange: () => void;
  readonly now?: () => number;
};

/** The purpose under which passwords of egress proxies are sealed. */
const PASSWORDS = "egress-proxy";

/** The file of the values, apart from the folder of the keys. */
export const secretsPath = (home: string) => join(home, "egress-secrets.json");

export async function openSecrets({ home, deploymentKey, seed, maxSecrets, issuer, onChange, now = Date.now }: SecretsParts): Promise<Secrets> {
  const store = openSecretStore({ path: secretsPath(home), key: deploymentKey, seed, maxSecrets, onChange, now });
  const tokens = await openTokens(deploymentKey, issuer, now);
  let authority: Authority | undefined;
  return {
    store,
    tokens,
    // Made at first need: a home whose sandboxes have no rules gets no authority.
    authority: () => (authority ??= openAuthority(home, deploymentKey, now)),
    sealPassword: (password) => seal(password, deploymentKey, PASSWORDS),
    unsealPassword: (sealed) => unseal(sealed, deploymentKey, PASSWORDS),
    async fill(templates, { sandboxID, tenant, tokens: definitions }) {
      let untilMs = Number.POSITIVE_INFINITY;
      const headers: [string, string][] = [];
      for (const { name, template } of templates) {
        const values = new Map<string, string>();
        for (const reference of referencesOf(template)) {
          const key = `${reference.kind} ${reference.name}`;
          try {
            if (reference.kind === "secret") values.set(key, store.value(reference.name, tenant));
            else {
              const definition = Object.hasOwn(definitions, reference.name) ? definitions[reference.name] : undefined;
              if (definition === undefined) throw new Failure("INVALID_REQUEST", `this sandbox has no identity token '${reference.name}'`);
              const made = await tokens.token(sandboxID, definition);
              values.set(key, made.token);
              untilMs = Math.min(untilMs, made.untilMs);
            }
          } catch (error) {
            const failure = asFailure(error);
            throw new Failure(failure.name, `header '${name}' cannot be filled in: ${failure.message}`, { cause: error });
          }
        }
        headers.push([name, filled(template, (reference) => values.get(`${reference.kind} ${reference.name}`) ?? "")]);
      }
      return { headers, untilMs };
    },
  };
}
