// Serves operations with fastify: parses, authenticates, calls the handler and answers. Only this file translates failures to HTTP.

import { randomUUID } from "node:crypto";
import { exactText } from "@svc/contract/exact-text.ts";
import { asFailure, Failure, type FailureName, fail, failureBody } from "@svc/contract/failures.ts";
import { issueText } from "@svc/contract/issues.ts";
import { notOffered } from "@svc/contract/not-offered.ts";
import type { Operation, Output, Parsed } from "@svc/contract/operation.ts";
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from "fastify";
import type { PageOptions } from "./home-page.ts";
import { authenticate, endWithKey } from "./keys/authenticate.ts";
import type { Keys } from "./keys/keys.ts";
import { type Guard, ownAnswer } from "./keys/own-answer.ts";
import { authorize, DEPLOYMENT, type Principal } from "./keys/principal.ts";
import type { TenantQuotas } from "./keys/tenant-quotas.ts";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";
import { proxyLimits } from "./proxy/limits.ts";
import { type AuditEntry, auditEntry, clientOf, isAudited } from "./serve-audit.ts";
import { answerBadURL, answerBrokenRequest } from "./serve-broken.ts";
import { answerOtherOrigins } from "./serve-origins.ts";
import { addPages } from "./serve-pages.ts";
import type { Spans } from "./spans.ts";
import { type Trace, traced, traceOf } from "./trace.ts";

const MAX_BODY_BYTES = 1024 * 1024;
/** The status that a span reports if the client left before the answer. */
const CLIENT_LEFT = 499;

/** The parts of the answer that a handler may set in addition to its output, and the parts of the request that it may read. */
export type Context = {
  /** Sets the status: one of the operation's `success` and `otherSuccess`. */
  status(code: number): void;
  header(name: string, value: string): void;
  /** Identifies the request in log lines and in the audit log. */
  readonly requestID: string;
  /** The client's address, as the proxy reported it. */
  readonly client: string;
  readonly signal: AbortSignal;
  /** W3C trace context to pass on: traceparent and tracestate, if the client sent them. */
  readonly trace: Trace;
  /** Whom the request's key stands for; the deployment for an operation that needs no key. */
  readonly principal: Principal;
};

export type Handlers<T extends Record<string, Operation>> = {
  [K in keyof T]: (input: Parsed<T[K]>, context: Context) => Promise<Output<T[K]>> | Output<T[K]>;
};

/** The scope in which routes outside the table are added. */
export type RawScope = FastifyInstance;

export type ServeOptions<T extends Record<string, Operation>> = {
  readonly operations: T;
  readonly handlers: Handlers<T>;
  /** The deployment's API key. Every route requires it, in either spelling, except operations with `none`. */
  readonly apiKey: string;
  /** Further keys, each of a tenant and with a role. */
  readonly keys?: Keys | undefined;
  /** The headers that say a tenant's quotas, and what is left of them. */
  readonly quotas?: Pick<TenantQuotas, "headersFor"> | undefined;
  /** Called before the handler of a request of a tenant. @throws if the input names what belongs to others. */
  readonly guard?: Guard | undefined;
  readonly log: Log;
  readonly metrics: Metrics;
  /**
   * Adds routes outside the table in a scope where `request.body` is an unparsed, unlimited stream, or undefined if there is no body. The
   * routes require the API key unless their config says `{ open: true }`; what they throw is translated as for other routes. `{ operation:
   * "name" }` in the config names them in metrics and the audit log.
   */
  readonly raw?: (scope: RawScope) => void;
  /** Allows pages of any origin to call the server and read its answers. They need the key, which a browser never sends by itself. */
  readonly anyOrigin?: boolean;
  /** False if the metrics are served elsewhere; GET /metrics is then not a route here. */
  readonly servesMetrics?: boolean;
  /** Adds pages for browsers at `/` and `/docs`, and `/openapi.json`, all without a key. */
  readonly pages?: PageOptions;
  /** If set, each operation becomes a span. */
  readonly spans?: Spans | undefined;
  /** Called once for each answer to a request that changes something, and for each refused credential; it must not block. */
  readonly audit?: (entry: AuditEntry) => void;
};

/** Creates an HTTP server for these operations and GET /metrics; the caller makes it listen. */
export function serve<T extends Record<string, Operation>>(options: ServeOptions<T>): FastifyInstance {
  const { operations, handlers, apiKey, keys, guard, quotas, log, metrics, raw, audit, spans } = options;
  const app = fastify({
    bodyLimit: MAX_BODY_BYTES,
    http: { maxHeaderSize: proxyLimits.headBytes },
    requestIdHeader: false,
    genReqId: () => randomUUID(),
    return503OnClosing: true,
    forceCloseConnections: "idle",
    frameworkErrors: answerBadURL,
    clientErrorHandler: answerBrokenRequest,
  });
  const seconds = metrics.seconds("svc_http_request_seconds", "Time from a request's head to its answer", ["operation", "code"]);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => {
    if (body.length === 0) return done(null, {});
    try {
      done(null, parseBody(exactText(body as Buffer)));
    } catch (error) {
      if (error instanceof Failure) done(error);
      else done(new Failure("INVALID_REQUEST", "the body is not valid JSON in UTF-8; send a JSON object with Content-Type: application/json"));
    }
  });
  if (options.anyOrigin === true) answerOtherOrigins(app);
  const principals = new WeakMap<FastifyRequest, Principal>();
  app.addHook("onRequest", (request, reply, done) => {
    // Access is checked per route, meaning method and path: a path that is open to GET may be closed to DELETE.
    const { open, operation } = request.routeOptions.config as { open?: boolean; operation?: string };
    if (open !== true) {
      const principal = authenticate(request, apiKey, keys);
      principals.set(request, principal);
      if (!request.is404) authorize(principal, operation ?? "this route");
      if (principal.kind === "tenant" && keys !== undefined) endWithKey(keys, principal.keyID, reply);
    }
    done();
  });
  if (quotas !== undefined) {
    app.addHook("onSend", async (request, reply, payload) => {
      const principal = principals.get(request);
      if (principal?.kind === "tenant" && !reply.raw.headersSent) reply.headers(quotas.headersFor(principal.tenant));
      return payload;
    });
  }
  const failed = new WeakMap<FastifyRequest, FailureName>();
  if (audit !== undefined) auditAnswers(app, (request, reply) => audit(auditEntry(request, reply, failed.get(request), principals.get(request))));
  app.addHook("onResponse", async (request, reply) => {
    const operation = (request.routeOptions.config as { operation?: string }).operation ?? "none";
    seconds.observe({ operation, code: String(reply.statusCode) }, reply.elapsedTime / 1000);
  });
  const refuse = (error: unknown, request: FastifyRequest, reply: FastifyReply) => {
    const failure = translate(error);
    failed.set(request, failure.name);
    if (failure.row.http === 413 || failure.row.http === 507) takeTheRest(request, reply);
    return answerFailure(failure, error, request, reply, log);
  };
  app.setErrorHandler(refuse);
  app.setNotFoundHandler((request, reply) => {
    const [path = ""] = request.url.split("?");
    const words = notOffered(request.method, path);
    const failure =
      words === undefined
        ? new Failure(
            "ROUTE_NOT_FOUND",
            `${request.method} ${path}: this server has no such operation; GET /docs lists those it has, GET /openapi.json as OpenAPI`,
          )
        : new Failure("NOT_OFFERED", words);
    return refuse(failure, request, reply);
  });

  for (const [name, operation] of Object.entries(operations)) {
    const handler = handlers[name] as (input: unknown, context: Context) => unknown;
    app.route({
      method: operation.method,
      url: operation.path.replace(/\{(\w+)\}/g, ":$1"),
      config: { operation: operation.name, open: operation.credential === "none" } as object,
      handler: (request, reply) => handle(operation, handler, request, reply, { log, spans, guard, principal: principals.get(request) ?? DEPLOYMENT }),
    });
  }
  if (options.servesMetrics !== false) addMetrics(app, metrics);
  if (options.pages !== undefined) addPages(app, operations, options.pages, options.servesMetrics !== false);
  if (raw !== undefined) {
    app.register(async (scope) => {
      scope.removeAllContentTypeParsers();
      scope.addContentTypeParser("*", (_request, payload, done) => done(null, payload));
      raw(scope);
    });
  }
  return app;
}

/** @throws INVALID_REQUEST for a member named `__proto__`, which JavaScript would drop silently by setting the object's prototype. */
function parseBody(text: string): unknown {
  if (!/__proto__|\\u/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (name, value: unknown) => {
    if (name === "__proto__") fail("INVALID_REQUEST", 'expected other names of members than "__proto__"');
    return value;
  });
}

/** Adds GET /metrics, which needs no key. */
export function addMetrics(app: FastifyInstance, metrics: Metrics): void {
  app.get("/metrics", { config: { operation: "metrics", open: true } as object }, async (_request, reply) =>
    reply.type(metrics.contentType).send(await metrics.text()),
  );
}

/**
 * Audits before the answer leaves, so that a client cannot hide a change by hanging up. Each request is audited once, even if its answer is
 * replaced.
 */
function auditAnswers(app: FastifyInstance, audit: (request: FastifyRequest, reply: FastifyReply) => void): void {
  const audited = new WeakSet<FastifyRequest>();
  app.addHook("onSend", async (request, reply, payload) => {
    if (!audited.has(request) && isAudited(request.method, reply.statusCode)) {
      audited.add(request);
      audit(request, reply);
    }
    return payload;
  });
}

async function handle(
  operation: Operation,
  handler: (input: unknown, context: Context) => unknown,
  request: FastifyRequest,
  reply: FastifyReply,
  { log, spans, guard, principal }: Pick<ServeOptions<never>, "log" | "spans" | "guard"> & { readonly principal: Principal },
): Promise<FastifyReply> {
  const asked = traceOf(request.headers);
  const client = clientOf(request);
  const span = spans?.begin({ method: operation.method, route: operation.path, client, requestID: request.id }, asked);
  const gone = new AbortController();
  // We listen to the response, because the request closes as soon as its body has been read.
  reply.raw.once("close", () => {
    if (!reply.raw.writableEnded) gone.abort();
    span?.end(reply.raw.writableEnded ? reply.statusCode : CLIENT_LEFT);
  });
  const input = readInput(operation, request);
  let status = operation.success;
  const context: Context = {
    status: (code) => {
      status = code;
    },
    header: (name, value) => void reply.header(name, value),
    requestID: request.id,
    client,
    signal: gone.signal,
    trace: span?.trace ?? asked,
    principal,
  };
  if (principal.kind === "tenant") await guard?.(principal, operation, input as Readonly<Record<string, unknown>>);
  const output = await traced(context.trace, async () => {
    try {
      return await handler(input, context);
    } finally {
      if (asked["traceparent"] !== undefined)
        log.info({ operation: operation.name, requestID: request.id, ms: Math.round(reply.elapsedTime) }, "request of a trace");
    }
  });
  reply.code(status);
  // Without a body fastify sends Content-Length: 0; some clients try to parse a body if the length is missing.
  if (status === 204 || output === undefined) return reply.send();
  return reply.type("application/json; charset=utf-8").send(JSON.stringify(ownAnswer(principal, operation, output)));
}

function readInput(operation: Operation, request: FastifyRequest): unknown {
  const query = operation.method === "GET" || operation.method === "DELETE" ? (request.query ?? {}) : {};
  const body = operation.method === "GET" ? {} : (request.body ?? {});
  if (typeof body !== "object" || body === null || Array.isArray(body)) fail("INVALID_REQUEST", "the body must be a JSON object");
  const members: Record<string, unknown> = { ...query, ...body, ...(request.params as object) };
  for (const [member, header] of Object.entries(operation.headers ?? {})) {
    delete members[member];
    const value = request.headers[header];
    if (value !== undefined) members[member] = value;
  }
  const parsed = operation.input.safeParse(members);
  if (parsed.success) return parsed.data;
  return fail("INVALID_REQUEST", issueText(parsed.error, members));
}

/**
 * Reads the rest of the body. Closing a connection with unread bytes would reset it, and the client, still sending, would lose its answer.
 */
function takeTheRest(request: FastifyRequest, reply: FastifyReply): void {
  reply.removeHeader("connection");
  request.raw.resume();
}

function answerFailure(failure: Failure, error: unknown, request: FastifyRequest, reply: FastifyReply, log: Log): FastifyReply {
  if (failure.row.http >= 500 && failure.name !== "NOT_OFFERED")
    traced(traceOf(request.headers), () =>
      log.error({ err: error, method: request.method, route: request.routeOptions.url, requestID: request.id }, failure.message),
    );
  if (failure.row.retry === false) reply.header("should-retry", "false");
  if (failure.retryAfterSeconds !== undefined) reply.header("retry-after", String(Math.ceil(failure.retryAfterSeconds)));
  const body =
    failure.name === "INTERNAL"
      ? { code: 500, message: `internal error; the log has it under request ${request.id}`, error_code: failure.name }
      : failureBody(failure);
  return reply.code(failure.row.http).type("application/json; charset=utf-8").send(JSON.stringify(body));
}

/** Converts fastify's own errors (body too large, bad request) to our failures. */
function translate(error: unknown): Failure {
  if (error instanceof Failure) return error;
  const status = (error as { statusCode?: number }).statusCode;
  const message = (error as Error).message;
  if (status === 413) return new Failure("PAYLOAD_TOO_LARGE", `the body is larger than ${MAX_BODY_BYTES} bytes`, { cause: error });
  if (status === 503) return new Failure("SHUTTING_DOWN", "the server is stopping", { cause: error, retryAfterSeconds: 1 });
  if (status !== undefined && status >= 400 && status < 500) return new Failure("INVALID_REQUEST", message, { cause: error });
  return asFailure(error);
}
