// The key set and the discovery document of identity tokens at a gateway: those of its nodes, merged, since each node signs for its own sandboxes.
import { fail } from "@svc/contract/failures.ts";
import type { RawScope } from "@svc/kit/serve.ts";
import type { Members } from "../members/members.ts";

const paths = ["/.well-known/jwks.json", "/.well-known/openid-configuration"] as const;
type Path = (typeof paths)[number];
type Document = { readonly keys?: readonly { readonly kid?: string }[] };

const TIMEOUT_MS = 5_000;
/** These routes need no key, so strangers must not make a gateway ask its nodes at every request. */
const KEPT_MS = 30_000;
const CACHE_SECONDS = 300;

export function identityRoutes(members: Pick<Members, "up">, nowMs: () => number): (scope: RawScope) => void {
  const kept = new Map<Path, { readonly untilMs: number; readonly document: Promise<Document> }>();

  async function asked(path: Path): Promise<Document> {
    const answers = await Promise.allSettled(
      members.up.map(async (member) => {
        const answer = await member.peers.fetch(member.url + path, { signal: AbortSignal.any([member.signal, AbortSignal.timeout(TIMEOUT_MS)]) });
        if (!answer.ok) throw new Error(`${member.name} answered ${answer.status}`);
        return (await answer.json()) as Document;
      }),
    );
    const documents = answers.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
    const [first] = documents;
    if (first === undefined) fail("SERVER_UNREACHABLE", "no node of this deployment answers; GET /nodes says why", { retryAfterSeconds: 1 });
    if (path !== "/.well-known/jwks.json") return first;
    return { keys: [...new Map(documents.flatMap(({ keys = [] }) => keys).map((key) => [key.kid, key])).values()] };
  }

  function documentOf(path: Path): Promise<Document> {
    const known = kept.get(path);
    if (known !== undefined && known.untilMs > nowMs()) return known.document;
    const document = asked(path);
    kept.set(path, { untilMs: nowMs() + KEPT_MS, document });
    document.catch(() => kept.delete(path));
    return document;
  }

  return (scope) => {
    for (const path of paths)
      scope.route({
        method: "GET",
        url: path,
        config: { open: true, operation: "identity" } as object,
        handler: async (_request, reply) => {
          const document = JSON.stringify(await documentOf(path));
          return reply.type("application/json; charset=utf-8").header("cache-control", `public, max-age=${CACHE_SECONDS}`).send(document);
        },
      });
  };
}
