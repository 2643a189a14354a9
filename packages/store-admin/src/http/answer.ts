// Answers a request: health, token check, routing, and one format for all errors.

import { exactText } from "@svc/contract/exact-text.ts";
import { asFailure, type Failure, fail } from "@svc/contract/failures.ts";
import { PAGE_TYPE } from "@svc/kit/home-page.ts";
import type { Answer, Request } from "@svc/kit/http/exchange.ts";
import type { Denials } from "@svc/store/access/denials.ts";
import { type AccessKeys, bearerOf } from "@svc/store/access/keys.ts";
import type { Call, Route } from "./route.ts";

export type AdminParts = {
  readonly routes: readonly Route[];
  readonly page: Buffer;
  /** Undefined if access control is off: every caller may do everything. */
  readonly access: { readonly keys: AccessKeys; readonly denials: Denials } | undefined;
  metrics(): Promise<string>;
  onFailure(failure: Failure, request: Request): void;
};

const healthPaths = ["/healthz", "/livez", "/health"];
const METRICS = "/metrics";
/** Failures of services that this server depends on; they become status 500. */
const ownTrouble = ["SERVER_UNREACHABLE", "METADATA_UNAVAILABLE", "ETCD_UNAVAILABLE", "ETCD_REFUSED", "TIMED_OUT", "CAPACITY_EXHAUSTED"];

const text = (body: string, type = "text/plain; charset=utf-8"): Answer => ({ status: 200, type, body: Buffer.from(body) });
const json = (status: number, value: unknown, more: Partial<Answer> = {}): Answer => ({
  status,
  type: "application/json",
  body: Buffer.from(JSON.stringify(value)),
  ...more,
});

/** `request` is missing for one that could not be read. */
export function refuseAdmin(error: unknown, { onFailure }: AdminParts, request: Request | undefined): Answer {
  const failure = asFailure(error);
  if (request !== undefined && statusOf(failure) >= 500) onFailure(failure, request);
  return json(statusOf(failure), { error: failure.message });
}

function statusOf(failure: Failure): number {
  return ownTrouble.includes(failure.name) ? 500 : failure.row.http;
}

/** The route of a path, as a metric label: clients must not be able to create arbitrary label values. */
export function labelOf(target: string, routes: readonly Route[]): string {
  const path = target.split("?", 1)[0] ?? "";
  if (healthPaths.includes(path) || path === METRICS || path === "/") return path;
  return bestMatch(path, routes)?.path ?? "other";
}

export async function answerAdmin(request: Request, { routes, page, access, metrics }: AdminParts): Promise<Answer> {
  const [path = "", query = ""] = request.target.split("?", 2);
  const isRead = request.method === "GET" || request.method === "HEAD";
  if (healthPaths.includes(path) && isRead) return text("ok\n");
  if (path === "/" && isRead) return { status: 200, type: PAGE_TYPE, body: page };
  if (path === METRICS && isRead) return text(await metrics(), "text/plain; version=0.0.4; charset=utf-8");
  if (access !== undefined && access.keys.find(bearerOf(request.authorization)) === undefined) {
    access.denials.note(request.peer, "an HTTP request without this admin server's token was refused");
    return json(401, { error: "missing or invalid admin authorization token" }, { headers: { "WWW-Authenticate": "Bearer" } });
  }
  const match = bestMatch(path, routes);
  if (match === undefined) return json(404, { error: `${path}: there is no such route` });
  const route = routes.find((each) => each.path === match.path && each.method === request.method);
  if (route === undefined) {
    const allow = routes.filter((each) => each.path === match.path).map(({ method }) => method);
    return json(405, { error: `${request.method} ${path}: expected ${allow.join(" or ")}` }, { headers: { Allow: allow.join(", ") } });
  }
  const params = Object.fromEntries(Object.entries(match.params).map(([name, given]) => [name, decoded(given)]));
  const call: Call = { params, search: new URLSearchParams(query), body: bodyOf(request) };
  const { status, value } = await route.answer(call);
  return json(status, value);
}

/** `params` are still encoded, so that a path that cannot be decoded has a route, too. */
type Match = { readonly path: string; readonly params: Readonly<Record<string, string>> };

function bestMatch(path: string, routes: readonly Route[]): Match | undefined {
  const found = routes.flatMap((route) => paramsOf(path, route.path) ?? []);
  return found.find(({ params }) => Object.keys(params).length === 0) ?? found[0];
}

function paramsOf(path: string, pattern: string): Match[] | undefined {
  const [given, wanted] = [path.split("/"), pattern.split("/")];
  if (given.length !== wanted.length) return undefined;
  const params: Record<string, string> = {};
  for (const [at, part] of wanted.entries()) {
    const name = /^\{(\w+)\}$/.exec(part)?.[1];
    const text = given[at] ?? "";
    if (name === undefined ? text !== part : text === "") return undefined;
    if (name !== undefined) params[name] = text;
  }
  return [{ path: pattern, params }];
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return fail("INVALID_REQUEST", `${text}: a percent sign must be followed by two hexadecimal digits of UTF-8`);
  }
}

function bodyOf({ method, body }: Request): Readonly<Record<string, unknown>> {
  if (method === "GET" || body.length === 0) return {};
  let value: unknown;
  try {
    value = JSON.parse(exactText(body));
  } catch {
    return fail("INVALID_REQUEST", "the body is not valid JSON");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return fail("INVALID_REQUEST", "expected a JSON object as the body");
  return value as Readonly<Record<string, unknown>>;
}
