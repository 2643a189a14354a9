// The handlers of secrets, and the public routes by which others check identity tokens.
import type { secretOperations, settleSecrets } from "@svc/contract/secrets.ts";
import type { Handlers, RawScope } from "@svc/kit/serve.ts";
import type { Secrets } from "./open-secrets.ts";

const KEY_SET_PATH = "/.well-known/jwks.json";
const CACHE_SECONDS = 300;

export function secretHandlers({ store, authority }: Secrets): Handlers<typeof secretOperations & { settleSecrets: typeof settleSecrets }> {
  return {
    createSecret: ({ name, value, metadata }, { principal }) => store.create(name, value, metadata ?? {}, principal),
    listSecrets({ limit, nextToken }, context) {
      const { items, next } = store.page(limit, nextToken, context.principal);
      if (next !== undefined) context.header("x-next-token", next);
      return items;
    },
    getSecret: ({ secretID }, { principal }) => store.get(secretID, principal),
    updateSecret: ({ secretID, value, metadata }, { principal }) => store.update(secretID, value, metadata ?? undefined, principal),
    deleteSecret({ secretID }, { principal }) {
      store.delete(secretID, principal);
      return undefined;
    },
    getEgressAuthority: () => authority().shown,
    settleSecrets({ records, names, stamps }) {
      const refused = store.settle(records);
      return { refused, records: store.records(names), stamps: stamps ? store.stamps() : [] };
    },
  };
}

/** The key set and the discovery document of OpenID Connect, which need no key: they say only what verifies a token. */
export function identityRoutes({ tokens }: Secrets): (scope: RawScope) => void {
  return (scope) => {
    const document = (url: string, body: () => unknown) =>
      scope.route({
        method: "GET",
        url,
        config: { open: true, operation: "identity" } as object,
        handler: async (_request, reply) =>
          reply.type("application/json; charset=utf-8").header("cache-control", `public, max-age=${CACHE_SECONDS}`).send(JSON.stringify(body())),
      });
    document(KEY_SET_PATH, () => tokens.keySet);
    document("/.well-known/openid-configuration", () => ({
      issuer: tokens.issuer(),
      jwks_uri: `${tokens.issuer().replace(/\/$/, "")}${KEY_SET_PATH}`,
      response_types_supported: ["id_token"],
      subject_types_supported: ["public"],
      id_token_signing_alg_values_supported: ["ES256"],
    }));
  };
}
