// The REST service's HTTP: paths, bodies, answers and errors.

import { asFailure } from "@svc/contract/failures.ts";
import { PAGE_TYPE } from "@svc/kit/home-page.ts";
import type { Answer, Request } from "@svc/kit/http/exchange.ts";
import { checkKey, checkSearch, checkTenant, type ServiceAccess } from "./access.ts";
import { type Fields, graceSeconds, jsonAnswer, MAX_LOCAL_DISK_GRACE_SECONDS, Refused, readFields } from "./body.ts";
import type { LocalDisk } from "./join.ts";
import type { Mounts } from "./mounts.ts";
import type { Objects } from "./objects.ts";
import { servicePage } from "./page.ts";

const METRICS_TYPE = "text/plain; version=0.0.4";

export type ServiceParts = {
  /** True if a disk is configured. */
  readonly hasDisk: boolean;
  /** Returns undefined until the service has joined its master. */
  readonly mounts: () => Mounts | undefined;
  readonly objects: () => Objects | undefined;
  readonly disk: () => LocalDisk | undefined;
  /** Returns "" when the service is ready, else the reason why not. */
  readonly trouble: () => string;
  readonly version: { readonly version: string; readonly display_version: string };
  /** The tenant of all objects that it puts and gets. */
  readonly tenant: string;
  /** If undefined, access control is off. */
  readonly access: ServiceAccess | undefined;
  metrics(): Promise<string>;
};

type Parts = { readonly tenant: string; readonly mounts: Mounts; readonly objects: Objects; readonly disk: LocalDisk };
type Route = (request: Request, parts: Parts, rest: string) => Promise<Answer>;
/** Runs before the service has joined: refuses malformed requests, and answers those that need no master. */
type Early = (request: Request, parts: ServiceParts) => Answer | undefined;
/** The routes by method and path, each with one sentence for the API page. */
type Routes<T> = Readonly<Record<string, readonly [does: string, route: T]>>;

const withFields =
  (act: (fields: Fields, parts: Parts) => Promise<object>): Route =>
  async (request, parts) =>
    jsonAnswer(await act(readFields(request.body), parts));

/** A path that ends with a slash is followed by a key. */
const routes: Routes<Route> = {
  "POST /api/mount_shm": ["Mounts shared memory as a segment", withFields((fields, { mounts }) => mounts.mountShared(fields))],
  "POST /api/unmount_shm": ["Unmounts it", withFields((fields, { mounts }) => mounts.unmount(fields, "shm"))],
  "POST /api/mount": ["Mounts memory of this service as a segment", withFields((fields, { mounts }) => mounts.mount(fields))],
  "POST /api/unmount": ["Unmounts it", withFields((fields, { mounts }) => mounts.unmount(fields, "memory"))],
  "POST /api/unmount_local_disk": [
    "Unmounts this service's disk after a grace in seconds",
    async (request, { disk }) => {
      await disk.unmount(diskGraceSeconds(request) * 1000);
      return jsonAnswer({ status: "success" });
    },
  ],
  "POST /api/reconfigure": [
    "Replaces the shared memory that this service offers, or unmounts it",
    withFields((fields, { mounts }) => mounts.reconfigure(fields)),
  ],
  "PUT /api/put": ["Stores a value; the body has key and value", put],
  "GET /api/get/": ["The value of the key behind the slash", get],
  "GET /api/exist/": ["Whether the key behind the slash exists", async (_request, { objects }, key) => jsonAnswer({ exists: await objects.exists(key) })],
  "DELETE /api/remove/": ["Removes the key behind the slash", remove],
  "DELETE /api/remove_all": [
    "Removes every key of this service's tenant",
    async (_request, { objects }) => jsonAnswer({ status: `success removed ${await objects.removeAll()} keys` }),
  ],
};

/** The request's body may be empty. */
const diskGraceSeconds = ({ body }: Request) => graceSeconds(body.length === 0 ? {} : readFields(body), MAX_LOCAL_DISK_GRACE_SECONDS);

const readsFields: Early = ({ body }) => void readFields(body);
const early: Readonly<Record<string, Early>> = {
  "POST /api/unmount_local_disk": (request, { hasDisk }) => {
    diskGraceSeconds(request);
    return hasDisk ? undefined : jsonAnswer({ status: "success" });
  },
  ...Object.fromEntries(["mount_shm", "unmount_shm", "mount", "unmount", "reconfigure"].map((verb) => [`POST /api/${verb}`, readsFields])),
  "PUT /api/put": readsFields,
};

const always: Routes<(parts: ServiceParts) => Answer | Promise<Answer>> = {
  "GET /": ["This page", () => ({ status: 200, type: PAGE_TYPE, body: page })],
  "GET /health": ["200 once it has joined its master; else 503 with the reason", health],
  "GET /version": ["The version that clients compare", ({ version }) => jsonAnswer(version)],
  "GET /metrics": ["Metrics for Prometheus", async (parts) => ({ status: 200, type: METRICS_TYPE, body: Buffer.from(await parts.metrics()) })],
};
const page = Buffer.from(servicePage(Object.entries({ ...routes, ...always }).map(([route, [does]]) => [route, does] as const)));

async function put(request: Request, { objects, tenant }: Parts): Promise<Answer> {
  const fields = readFields(request.body);
  checkTenant(tenant, Object.keys(fields), [fields["tenant_id"]]);
  const { key, value } = fields;
  if (typeof key !== "string" || key === "" || typeof value !== "string" || value === "") throw new Refused(400, "Missing key or value");
  await objects.put(key, Buffer.from(value));
  return jsonAnswer({ status: "success" });
}

async function get(_request: Request, { objects }: Parts, key: string): Promise<Answer> {
  const value = await objects.get(key);
  if (value === undefined) throw new Refused(404, "Key not found");
  return { status: 200, type: "application/octet-stream", body: value };
}

async function remove(_request: Request, { objects }: Parts, key: string): Promise<Answer> {
  await objects.remove(key);
  return jsonAnswer({ status: "success" });
}

function health({ trouble }: ServiceParts): Answer {
  const why = trouble();
  return { status: why === "" ? 200 : 503, type: METRICS_TYPE, body: Buffer.from(why === "" ? "OK" : why) };
}

const paths = [...Object.keys(routes), ...Object.keys(always)].map((name) => name.slice(name.indexOf(" ") + 1));

/** Returns the path as a label of a metric, without the key. */
export function knownPath(target: string): string {
  const path = pathOf(target);
  return paths.find((known) => (known.endsWith("/") && known !== "/" ? path.startsWith(known) : path === known)) ?? "other";
}

const pathOf = (target: string) => target.split("?", 1)[0] as string;

export async function answerService(request: Request, parts: ServiceParts): Promise<Answer> {
  const path = pathOf(request.target);
  const known = knownPath(request.target);
  if (parts.access !== undefined) checkKey(parts.access, request, known);
  const name = `${request.method === "HEAD" ? "GET" : request.method} ${known}`;
  const own = Object.hasOwn(always, name) ? always[name]?.[1] : undefined;
  if (own !== undefined) return own(parts);
  const route = Object.hasOwn(routes, name) ? routes[name]?.[1] : undefined;
  if (route === undefined) {
    const allow = [...Object.keys(routes), ...Object.keys(always)].flatMap((each) => (each.endsWith(` ${known}`) ? [each.slice(0, each.indexOf(" "))] : []));
    if (allow.length === 0) throw new Refused(404, `There is no ${path.slice(0, 200)}`);
    return { ...jsonAnswer({ error: `Expected ${allow.join(" or ")}, got ${request.method}` }, 405), headers: { Allow: allow.join(", ") } };
  }
  checkSearch(parts.tenant, request.target.slice(path.length + 1));
  const rest = known.endsWith("/") ? keyOf(path.slice(known.length)) : "";
  const [mounts, objects, disk] = [parts.mounts(), parts.objects(), parts.disk()];
  if (mounts === undefined || objects === undefined || disk === undefined) {
    const answered = Object.hasOwn(early, name) ? early[name]?.(request, parts) : undefined;
    if (answered !== undefined) return answered;
    throw new Refused(503, parts.trouble());
  }
  return route(request, { tenant: parts.tenant, mounts, objects, disk }, rest);
}

function keyOf(text: string): string {
  try {
    const key = decodeURIComponent(text);
    if (key !== "") return key;
  } catch {
    throw new Refused(400, "The key is not percent-encoded UTF-8");
  }
  throw new Refused(400, "Missing key");
}

export function refuseService(error: unknown): Answer {
  if (error instanceof Refused) {
    const answer = jsonAnswer({ error: error.message, ...error.more }, error.status);
    return error.status === 401 ? { ...answer, headers: { "WWW-Authenticate": "Bearer" } } : answer;
  }
  const failure = asFailure(error);
  return jsonAnswer({ error: failure.message, ...failure.details }, failure.row.http);
}
