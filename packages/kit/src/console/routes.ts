// The console's own routes below /console: its page, signing in and out, calls of operations, and files of sandboxes.
import { randomBytes } from "node:crypto";
import type { Readable } from "node:stream";
import { CONSOLE_HEADER, type ConsoleSession } from "@svc/contract/console.ts";
import { asFailure, fail, failureBody } from "@svc/contract/failures.ts";
import { carriesBody, type Operation, pathMembers } from "@svc/contract/operation.ts";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { RawScope } from "../serve.ts";
import { clientOf } from "../serve-audit.ts";
import type { Assets } from "./assets.ts";
import { auditTail } from "./audit-tail.ts";
import { buildFromDockerfile } from "./build.ts";
import { Cache } from "./cache.ts";
import { type Guard, type OwnHost, protect } from "./guard.ts";
import { type InsideAct, pathOf } from "./inside.ts";
import type { ConsoleOptions, Started } from "./options.ts";
import { readJSON } from "./read-body.ts";
import type { Ring } from "./ring.ts";
import { cookieHeader, type Opened, type Session, type Sessions } from "./sessions.ts";

export type RouteParts = {
  readonly options: ConsoleOptions;
  readonly guard: Guard;
  readonly sessions: Sessions;
  readonly assets: Assets;
  readonly ring: Ring;
  readonly started: () => Started;
};

type Signed = { readonly own: OwnHost; readonly session: Session };
/** Operations whose answers hold tokens; a read-only console leaves these members out. */
const secretMembers: readonly string[] = ["envdAccessToken", "trafficAccessToken"];
const MAX_LISTED = 200;

export function consoleRoutes(scope: RawScope, parts: RouteParts): void {
  const { options, guard, sessions, assets, ring, started } = parts;
  const { settings, apiKey } = options;
  if (settings.mode === "off") return;
  const isReadOnly = settings.mode === "read-only";
  const open = (operation: string) => ({ config: { operation, open: true } as object, exposeHeadRoute: false });

  /** @throws ACCESS_DENIED, UNAUTHENTICATED. */
  const signed = (request: FastifyRequest): Signed => {
    const own = guard.ownOrigin(request.headers);
    const half = request.headers[CONSOLE_HEADER];
    const session = sessions.find(request.headers.cookie, own.port, typeof half === "string" ? half : undefined);
    return { own, session: session ?? fail("UNAUTHENTICATED", "this page is not signed in, or its session is over: sign in again") };
  };
  const acting = (request: FastifyRequest): Signed => {
    const found = signed(request);
    if (found.session.isReadOnly) fail("ACCESS_DENIED", "this console is read-only: it changes nothing and shows no content of sandboxes");
    return found;
  };
  const opened = (reply: FastifyReply, { port, isSecure }: OwnHost, { session, cookie, half }: Opened) => {
    reply.header("set-cookie", cookieHeader(port, cookie, (session.expiresMs - Date.now()) / 1000, isSecure));
    return half;
  };

  const page = async (request: FastifyRequest, reply: FastifyReply) => {
    protect(request, reply);
    const own = guard.own(request.headers);
    if (!assets.isBuilt) fail("HOST_UNSUITABLE", "the console's page is not built here: run ./svc setup --only console, then start this server by ./svc");
    const nonce = randomBytes(16).toString("base64");
    const { domain } = started();
    return reply
      .type("text/html; charset=utf-8")
      .header("content-security-policy", guard.policy(own, nonce, domain))
      .send(assets.page(nonce, options.keySource));
  };
  scope.get("/console", open("console"), page);
  scope.get("/console/*", open("console"), page);
  scope.get("/console/assets/:file", open("console"), async (request, reply) => {
    protect(request, reply);
    guard.own(request.headers);
    const file = (request.params as { file: string }).file;
    const asset = assets.find(file) ?? fail("ROUTE_NOT_FOUND", `the console has no file ${file}: reload the page, which may be older than this server`);
    const isPacked = asset.gzip !== undefined && /\bgzip\b/.test(String(request.headers["accept-encoding"] ?? ""));
    if (isPacked) reply.header("content-encoding", "gzip");
    return reply
      .type(asset.type)
      .header("vary", "accept-encoding")
      .send(isPacked ? asset.gzip : asset.bytes);
  });

  /** Adds a route of the page's own API, which answers JSON. */
  const api = (method: "GET" | "POST", path: string, handle: (request: FastifyRequest, reply: FastifyReply) => unknown) =>
    scope.route({
      method,
      url: `/console/api/${path}`,
      ...open(`console ${path}`),
      handler: async (request, reply) => {
        protect(request, reply);
        const answer = await handle(request, reply);
        return reply.sent || answer === reply ? reply : reply.type("application/json; charset=utf-8").send(JSON.stringify(answer ?? {}));
      },
    });

  api("POST", "sign-in", async (request, reply) => {
    const own = guard.ownOrigin(request.headers);
    const { key, once } = await readJSON(request);
    const given = { ...(typeof key === "string" ? { key } : {}), ...(typeof once === "string" ? { once } : {}), isReadOnly };
    return { half: opened(reply, own, sessions.signIn(given)) };
  });
  api("POST", "sign-out", (request, reply) => {
    const { own, session } = signed(request);
    sessions.signOut(session);
    started().live.end(session);
    reply.header("set-cookie", cookieHeader(own.port, "", 0, own.isSecure));
  });
  // Only this route takes the API key, and no cookie: `svc console` calls it.
  scope.post("/console/api/links", { config: { operation: "console links" } as object }, async (request, reply) => {
    protect(request, reply);
    const { readOnly } = await readJSON(request);
    const { token, seconds } = sessions.link(readOnly === true);
    return { path: `/console#once=${token}`, seconds };
  });
  api("GET", "session", (request, reply): ConsoleSession => {
    const { own, session } = signed(request);
    const renewed = sessions.renewed(session);
    if (renewed !== undefined) opened(reply, own, renewed);
    return {
      kind: options.kind,
      title: options.title,
      version: options.version,
      isReadOnly: session.isReadOnly,
      domain: started().domain,
      operations: Object.keys(options.operations),
      hasNodes: "listNodes" in options.operations,
      hasAudit: options.auditLog !== undefined && !session.isReadOnly,
      expiresAt: (renewed?.session ?? session).expiresMs,
      now: Date.now(),
    };
  });
  api("POST", "call", async (request, reply) => {
    const { session } = signed(request);
    const { operation: name, input = {} } = await readJSON(request);
    const operation = options.operations[String(name)] ?? fail("ROUTE_NOT_FOUND", `this server has no operation ${JSON.stringify(name)}`);
    if (session.isReadOnly && operation.method !== "GET") fail("ACCESS_DENIED", "this console is read-only: it changes nothing");
    if (typeof input !== "object" || input === null) fail("INVALID_REQUEST", "input: expected an object");
    const answer = await started().app.inject({ ...requestOf(operation, input as Record<string, unknown>), ...headersOf(request, apiKey) } as never);
    for (const header of ["x-next-token", "retry-after"]) if (answer.headers[header] !== undefined) reply.header(header, String(answer.headers[header]));
    reply.code(answer.statusCode === 204 ? 200 : answer.statusCode);
    const text = answer.payload === "" ? "null" : answer.payload;
    return reply.type("application/json; charset=utf-8").send(session.isReadOnly ? withoutSecrets(text) : text);
  });
  api("GET", "ring", (request) => {
    signed(request);
    return { samples: ring.samples };
  });
  api("GET", "doctor", async (request) => {
    signed(request);
    return options.doctor === undefined ? fail("ROUTE_NOT_FOUND", "this server checks no host; run ./svc doctor on a node") : await options.doctor();
  });
  api("GET", "audit", async (request) => {
    // A wall screen must not show the addresses of clients.
    acting(request);
    return options.auditLog === undefined ? fail("ROUTE_NOT_FOUND", "this server keeps no audit log") : { lines: await auditTail(options.auditLog) };
  });
  api("POST", "inside/:sandboxID", async (request) => {
    // The body is read before a refusal: a connection that closes with it unread may lose the answer.
    const act = (await readJSON(request)) as InsideAct;
    acting(request);
    const answer = await insideOf(started()).act(idOf(request), act);
    return { value: Array.isArray(answer) ? answer.slice(0, MAX_LISTED * 50) : answer };
  });
  api("GET", "files/:sandboxID", async (request, reply) => {
    acting(request);
    const envd = await insideOf(started()).envd(idOf(request));
    const { body, sizeBytes } = await envd.download(pathOf((request.query as { path?: string }).path));
    if (sizeBytes !== undefined) reply.header("content-length", String(sizeBytes));
    // A file of a sandbox must never run as a page of the console.
    return reply.type("application/octet-stream").header("content-disposition", "attachment").send(body);
  });
  api("POST", "files/:sandboxID", async (request) => {
    acting(request);
    const length = Number(request.headers["content-length"]);
    const envd = await insideOf(started()).envd(idOf(request));
    await envd.upload(pathOf((request.query as { path?: string }).path), (request.body ?? Buffer.alloc(0)) as Readable, {
      ...(Number.isSafeInteger(length) ? { sizeBytes: length } : {}),
    });
  });
  const cache = new Cache(settings, options.home);
  api("GET", "cache", async (request) => {
    signed(request);
    return await cache.view();
  });
  api("POST", "explain", async (request) => {
    signed(request);
    return await cache.explain(await readJSON(request));
  });
  api("POST", "cache-act", async (request) => {
    acting(request);
    const { act, id } = await readJSON(request);
    return await cache.act(act, id);
  });
  api("POST", "build", async (request) => {
    const asked = await readJSON(request);
    acting(request);
    return await buildFromDockerfile(started().client, asked);
  });
}

const idOf = (request: FastifyRequest) => (request.params as { sandboxID: string }).sandboxID;
const insideOf = ({ inside }: Started) => inside ?? fail("ROUTE_NOT_FOUND", "this server has no sandboxes");

/** The request is audited as the person's, from their address. */
function headersOf(request: FastifyRequest, apiKey: string) {
  return {
    headers: {
      "x-api-key": apiKey,
      "user-agent": `svc-console ${String(request.headers["user-agent"] ?? "")}`,
      "content-type": "application/json",
    },
    remoteAddress: clientOf(request),
  };
}

function requestOf(operation: Operation, input: Record<string, unknown>) {
  const inPath = pathMembers(operation.path);
  const path = operation.path.replace(/\{(\w+)\}/g, (_, member: string) => encodeURIComponent(String(input[member] ?? "")));
  const rest = Object.entries(input).filter(([member, value]) => !inPath.includes(member) && value !== undefined && value !== null);
  if (carriesBody(operation.method)) {
    const hasBody = operation.method !== "DELETE" || rest.length > 0;
    return { method: operation.method, url: path, ...(hasBody ? { payload: JSON.stringify(Object.fromEntries(rest)) } : {}) };
  }
  const query = new URLSearchParams(rest.map(([member, value]): [string, string] => [member, String(value)]));
  return { method: operation.method, url: query.size === 0 ? path : `${path}?${query}` };
}

function withoutSecrets(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text, (member, value: unknown) => (secretMembers.includes(member) ? undefined : value)));
  } catch (error) {
    return JSON.stringify(failureBody(asFailure(error)));
  }
}
