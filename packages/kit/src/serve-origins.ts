// Cross-origin requests of browsers (CORS): preflights need no key, and pages of any origin may read the answers.
import type { FastifyInstance } from "fastify";

const METHODS = "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS";
/** The allowed headers if the preflight does not name any. */
const HEADERS = "Authorization, Content-Type, X-API-Key";
/** Half a day, like E2B's own API. */
const MAX_AGE_SECONDS = "43200";
/** One or more header names; we echo what the browser requests only if it has this form. */
const headerNames = /^[A-Za-z0-9!#$%&'*+.^_`|~ ,-]{1,2048}$/;

/** Allows all origins without credentials: we use no cookies, so a page must know the key. */
export function answerOtherOrigins(app: FastifyInstance): void {
  app.addHook("onRequest", async (request, reply) => {
    if (request.headers.origin === undefined) return;
    reply.header("access-control-allow-origin", "*").header("access-control-expose-headers", "*");
    if (request.method !== "OPTIONS" || request.headers["access-control-request-method"] === undefined) return;
    const wanted = String(request.headers["access-control-request-headers"] ?? "");
    return reply
      .code(204)
      .header("access-control-allow-methods", METHODS)
      .header("access-control-allow-headers", headerNames.test(wanted) ? wanted : HEADERS)
      .header("access-control-max-age", MAX_AGE_SECONDS)
      .send();
  });
}
