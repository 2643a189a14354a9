// GET /cluster/find tells a gateway whether this node knows a sandbox, template, key of a create, signature or token.
import { FIND_PATH, type FindAnswer, type FindQuery, findQuery } from "@svc/contract/cluster.ts";
import { Failure, fail } from "@svc/contract/failures.ts";
import type { RawScope } from "@svc/kit/serve.ts";
import { SignatureSearch } from "../proxy/signature.ts";
import type { SandboxDirectory } from "../records/directory.ts";

export type FindParts = {
  readonly directory: SandboxDirectory;
  /** True for a sandbox that is owned, quarantined, or ended within the last hour. */
  readonly knowsSandbox: (sandboxID: string) => boolean;
  readonly knowsTemplate: (asked: string) => boolean;
  readonly buildOf: (asked: string) => string | undefined;
  readonly knowsVolume: (volumeID: string) => Promise<boolean>;
  readonly knowsKey: (idempotencyKey: string) => boolean;
};

export function findRoutes({ directory, knowsSandbox, knowsTemplate, buildOf, knowsVolume, knowsKey }: FindParts): (scope: RawScope) => void {
  const search = new SignatureSearch(directory);

  async function find({ sandboxID, templateID, volumeID, idempotencyKey, target, isWrite, token }: FindQuery): Promise<FindAnswer> {
    if (volumeID !== undefined) return { found: await knowsVolume(volumeID) };
    if (sandboxID !== undefined) return { found: knowsSandbox(sandboxID) };
    if (templateID !== undefined) {
      const buildID = buildOf(templateID);
      return { found: knowsTemplate(templateID), ...(buildID === undefined ? {} : { buildID }) };
    }
    if (idempotencyKey !== undefined) return { found: knowsKey(idempotencyKey) };
    const found =
      token !== undefined ? search.byToken(token) : target === undefined ? undefined : search.bySignature(target, isWrite === "true", performance.now());
    if (found === "busy") throw new Failure("TOO_MANY_REQUESTS", "too many unknown signatures were sent; try again", { retryAfterSeconds: 1 });
    return found === undefined || found === "unknown" ? { found: false } : { found: true, sandboxID: found.sandboxID };
  }

  return (scope) => {
    scope.get(FIND_PATH, { exposeHeadRoute: false, config: { operation: "clusterFind" } as object }, async (request, reply) => {
      const query = findQuery.safeParse(request.query);
      if (!query.success) fail("INVALID_REQUEST", `${FIND_PATH}: ${query.error.issues[0]?.message ?? "is not valid"}`);
      return reply.type("application/json; charset=utf-8").send(JSON.stringify(await find(query.data)));
    });
  };
}
