// GET /cluster/offers: what this node offers to other nodes, with its manifest and chunks, for nodes that have the API key.
import { OFFERS_PATH, type OfferAnswer } from "@svc/contract/cluster.ts";
import { fail } from "@svc/contract/failures.ts";
import type { RawScope } from "@svc/kit/serve.ts";
import type { Offers } from "./offers.ts";
import { SNAPSHOT_ID } from "./subjects.ts";
import { BUILD_ID } from "./template-manifest.ts";

const MAX_NAME_CHARS = 200;
const SHA256 = /^[0-9a-f]{64}$/;

/** Adds the routes to the `raw` scope of serve(). */
export function offerRoutes(offers: Offers): (scope: RawScope) => void {
  const idOf = (id: string) => (SNAPSHOT_ID.test(id) || BUILD_ID.test(id) ? id : fail("INVALID_REQUEST", "expected the id of a snapshot or of a build"));
  const baseOf = ({ base = "false" }: { base?: string }) =>
    base === "true" || base === "false" ? base === "true" : fail("INVALID_REQUEST", "base: expected true or false");
  const options = (operation: string) => ({ exposeHeadRoute: false, config: { operation } as object });

  return (scope) => {
    scope.get(OFFERS_PATH, options("findOffer"), (request, reply) => {
      const { asked } = request.query as { asked?: unknown };
      if (typeof asked !== "string" || asked.length === 0 || asked.length > MAX_NAME_CHARS)
        fail("INVALID_REQUEST", `${OFFERS_PATH}: expected ?asked=ID, NAME or NAME:TAG`);
      const offer = offers.find(asked);
      const named = offers.named(asked);
      const known = named === undefined ? {} : { named };
      const answer: OfferAnswer = offer === undefined ? { ...known, wasDeleted: offers.wasDeleted(asked) } : { ...known, offer, wasDeleted: false };
      return reply.type("application/json; charset=utf-8").send(JSON.stringify(answer));
    });
    scope.get(`${OFFERS_PATH}/:id`, options("readOffer"), async (request, reply) => {
      const { id } = request.params as { id: string };
      return reply.type("application/octet-stream").send(await offers.manifest(idOf(id), baseOf(request.query as { base?: string })));
    });
    scope.get(`${OFFERS_PATH}/:id/:sha256`, options("readOfferedChunk"), async (request, reply) => {
      const { id, sha256 } = request.params as { id: string; sha256: string };
      if (!SHA256.test(sha256)) fail("INVALID_REQUEST", "expected a chunk's SHA-256 in hex");
      return reply.type("application/octet-stream").send(await offers.chunk(idOf(id), baseOf(request.query as { base?: string }), sha256));
    });
  };
}
