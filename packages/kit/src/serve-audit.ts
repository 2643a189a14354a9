// The audit log's entry of a request: who called which operation on what, and the outcome. It never contains a body.
import { createHash } from "node:crypto";
import type { FailureName } from "@svc/contract/failures.ts";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Principal } from "./keys/principal.ts";

export type AuditEntry = {
  /** RFC 3339 time when the answer was ready. */
  readonly at: string;
  readonly operation: string;
  readonly method: string;
  /** The declared route with unfilled parameters; `none` for an unknown route. */
  readonly route: string;
  /** Path parameters that identify something: sandboxID, templateID, … */
  readonly target: Readonly<Record<string, string>>;
  readonly status: number;
  readonly errorCode?: FailureName;
  /** The client's address, as the proxy reported it. */
  readonly client: string;
  readonly userAgent: string;
  readonly requestID: string;
  /** The first eight hexadecimal digits of the SHA-256 of the given API key; absent if no key was sent. */
  readonly keyFingerprint?: string;
  /** The tenant and the id of the named key, also of one that a gateway checked. */
  readonly tenant?: string;
  readonly keyID?: string;
  readonly durationMs: number;
};

/** Longer texts are cut, because a log line must not grow with what a stranger sends. */
const MAX_TEXT = 256;
/** Path parameters that identify something. Others may be capabilities, such as a signature, which no log may contain. */
const namesThing = /^(alias|[a-zA-Z]+ID)$/;

/** Returns whether this answer belongs in the audit log: a change, or a refused credential. */
export function isAudited(method: string, status: number): boolean {
  return (method !== "GET" && method !== "HEAD" && method !== "OPTIONS") || status === 401 || status === 403;
}

export function auditEntry(request: FastifyRequest, reply: FastifyReply, failure: FailureName | undefined, principal?: Principal): AuditEntry {
  const { operation = "none" } = request.routeOptions.config as { operation?: string };
  const key = request.headers["x-api-key"];
  return {
    at: new Date().toISOString(),
    operation,
    method: request.method,
    route: (request.routeOptions.url ?? "none").replace(/:(\w+)/g, "{$1}"),
    target: targetOf(request.params),
    status: reply.statusCode,
    ...(failure === undefined ? {} : { errorCode: failure }),
    client: clientOf(request),
    userAgent: String(request.headers["user-agent"] ?? "").slice(0, MAX_TEXT),
    requestID: request.id,
    ...(key === undefined || key === "" ? {} : { keyFingerprint: fingerprint(String(key)) }),
    ...(principal?.kind === "tenant" ? { tenant: principal.tenant, keyID: principal.keyID } : {}),
    durationMs: Math.round(reply.elapsedTime),
  };
}

function targetOf(params: unknown): Record<string, string> {
  const members = Object.entries((params ?? {}) as Record<string, unknown>);
  return Object.fromEntries(members.filter(([name]) => namesThing.test(name)).map(([name, value]) => [name, String(value).slice(0, MAX_TEXT)]));
}

/** The fingerprint suffices to tell keys apart, but is too short to test guesses against. */
export function fingerprint(key: string): string {
  return createHash("sha256").update(key).digest("hex").slice(0, 8);
}

/**
 * Returns the client's address. Behind a proxy this server listens on a unix socket and trusts the proxy's header, since the proxy drops
 * the client's own claim. Over TCP the peer is the client, whatever it claims.
 */
export function clientOf(request: FastifyRequest): string {
  // A request whose body broke off has no socket any more.
  const peer = (request.raw.socket as typeof request.raw.socket | null)?.remoteAddress;
  if (peer !== undefined && peer !== "") return peer.replace(/^::ffff:(?=\d+\.)/, "");
  return String(request.headers["x-forwarded-for"] ?? "unknown").slice(0, MAX_TEXT);
}
