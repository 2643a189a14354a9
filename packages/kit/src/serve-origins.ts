// Cross-origin requests of browsers (CORS): preflights are answered without a key, and answers may be read by pages of any origin.
import type { FastifyInstance } from "fastify";

const METHODS = "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS";
/** What a page may send where it does not say what it wants to. */
const HEADERS = "Authorization, Content-Type, X-API-Key";
/** Half a day, as E2B's own API says. */
const MAX_AGE_SECONDS = "43200";
/** A header's name, or several: what a browser asks for is sent back, and nothing else. */
const headerNames = /^[A-Za-z0-9!#$%&'*+.^_`|~ ,-]{1,2048}$/;

/** Credentials that a browser adds by itself (cookies) are not allowed, and there are none: a page has to know the key. */
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
