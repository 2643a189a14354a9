// What the audit log is told of a request: who asked for what, of which thing, and how it ended; nothing of any body.
import { createHash } from "node:crypto";
import type { FailureName } from "@svc/contract/failures.ts";
import type { FastifyReply, FastifyRequest } from "fastify";

export type AuditEntry = {
  /** RFC 3339: when the answer was ready. */
  readonly at: string;
  readonly operation: string;
  readonly method: string;
  /** As declared, its members unfilled; `none` where there is no such route. */
  readonly route: string;
  /** The path's members that name something: sandboxID, templateID, … */
  readonly target: Readonly<Record<string, string>>;
  readonly status: number;
  readonly errorCode?: FailureName;
  /** The address that the client came from, as the proxy saw it. */
  readonly client: string;
  readonly userAgent: string;
  readonly requestID: string;
  /** The first eight hexadecimal digits of the SHA-256 of the API key that was sent; absent where none was. */
  readonly keyFingerprint?: string;
  readonly durationMs: number;
};

/** Longer ones say nothing more, and a log line must not grow with what a stranger sends. */
const MAX_TEXT = 256;
/** Members of a path that name something. Others may be capabilities (a signature), which no log may hold. */
const namesThing = /^(alias|[a-zA-Z]+ID)$/;

/** Whether this answer belongs in the audit log: a change, or a credential refused. */
export function isAudited(method: string, status: number): boolean {
  return (method !== "GET" && method !== "HEAD" && method !== "OPTIONS") || status === 401 || status === 403;
}

export function auditEntry(request: FastifyRequest, reply: FastifyReply, failure: FailureName | undefined): AuditEntry {
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
    durationMs: Math.round(reply.elapsedTime),
  };
}

function targetOf(params: unknown): Record<string, string> {
  const members = Object.entries((params ?? {}) as Record<string, unknown>);
  return Object.fromEntries(members.filter(([name]) => namesThing.test(name)).map(([name, value]) => [name, String(value).slice(0, MAX_TEXT)]));
}

/** Enough to tell keys apart, too little to try them out against. */
export function fingerprint(key: string): string {
  return createHash("sha256").update(key).digest("hex").slice(0, 8);
}

/**
 * Behind a proxy this server listens on a unix socket, and the proxy names its client (it drops what the client itself
 * claims). Reached over TCP, the peer is the client, whatever it claims.
 */
export function clientOf(request: FastifyRequest): string {
  // A request whose body broke off has no socket any more.
  const peer = (request.raw.socket as typeof request.raw.socket | null)?.remoteAddress;
  if (peer !== undefined && peer !== "") return peer.replace(/^::ffff:(?=\d+\.)/, "");
  return String(request.headers["x-forwarded-for"] ?? "unknown").slice(0, MAX_TEXT);
}
