// The servers of the cache as the console shows them: fixed reads and named acts, at the addresses of the settings only.
import { asFailure, fail } from "@svc/contract/failures.ts";
import { type OwnServerKind, ownServer } from "../own-server.ts";
import type { ConsoleSettings } from "./settings.ts";

type Kind = "indexer" | "store" | "admin" | "metadata";
type Part = { readonly name: string; readonly path: string; readonly as: "json" | "metrics" };
/** The view of one server: its parts, or why it does not answer. */
export type CacheServer = { readonly url: string; readonly isUp: boolean; readonly why: string; readonly parts: Readonly<Record<string, unknown>> };
export type CacheView = Readonly<Partial<Record<Kind, CacheServer>>>;

const READ_MS = 3_000;
const ACT_MS = 30_000;
const MAX_BYTES = 8 * 1024 * 1024;
/** The time for which all pages share the result of one read. */
const KEPT_MS = 1_000;

const reads: Readonly<Record<Kind, readonly Part[]>> = {
  indexer: [
    { name: "services", path: "/services", as: "json" },
    { name: "metrics", path: "/metrics", as: "metrics" },
  ],
  store: [
    { name: "metrics", path: "/metrics", as: "metrics" },
    { name: "segments", path: "/get_segments_detail", as: "json" },
    { name: "clients", path: "/api/v1/clients", as: "json" },
    { name: "disks", path: "/api/v1/disks", as: "json" },
    { name: "ha", path: "/api/v1/ha", as: "json" },
  ],
  admin: [
    { name: "migrations", path: "/v1/route-migrations", as: "json" },
    { name: "devices", path: "/v1/cold-tier/devices", as: "json" },
  ],
  metadata: [{ name: "records", path: "/metadata?prefix=", as: "json" }],
};

type Act = { readonly kind: Kind; readonly path: (id: string) => string };
const ofDevice = (verb: string): Act => ({ kind: "admin", path: (id) => `/v1/cold-tier/devices/${encodeURIComponent(id)}/${verb}` });
const acts: Readonly<Record<string, Act>> = {
  enableDevice: ofDevice("enable"),
  disableDevice: ofDevice("disable"),
  drainDevice: ofDevice("drain"),
  unregisterDevice: ofDevice("unregister"),
  lead: { kind: "store", path: (id) => `/api/v1/lead?to=${encodeURIComponent(id)}` },
};

/** The settings' own defaults. Where a server of the same home says that it is elsewhere, it is asked there. */
const usual: Readonly<Record<Kind, { readonly url: string; readonly own: OwnServerKind }>> = {
  indexer: { url: "http://127.0.0.1:13333", own: "indexer" },
  store: { url: "http://127.0.0.1:9003", own: "master" },
  admin: { url: "http://127.0.0.1:18080", own: "admin" },
  metadata: { url: "http://127.0.0.1:8081", own: "metadata" },
};

export class Cache {
  readonly #given: Readonly<Record<Kind, string>>;
  readonly #home: string;
  #view: { readonly atMs: number; readonly reading: Promise<CacheView> } | undefined;

  constructor({ indexer_url, store_url, store_admin_url, metadata_url }: ConsoleSettings, home: string) {
    this.#given = { indexer: indexer_url, store: store_url, admin: store_admin_url, metadata: metadata_url };
    this.#home = home;
  }

  #urlOf(kind: Kind): string {
    const given = this.#given[kind];
    const own = given === usual[kind].url ? ownServer(this.#home, usual[kind].own) : undefined;
    // A server that was killed leaves its file. The metadata server writes its path behind its address.
    return own === undefined || !isAlive(own.pid) ? given : new URL(own.url).origin;
  }

  /** Reads all servers at once; one that does not answer is a line of the view. */
  view(): Promise<CacheView> {
    if (this.#view === undefined || performance.now() - this.#view.atMs > KEPT_MS) this.#view = { atMs: performance.now(), reading: this.#read() };
    return this.#view.reading;
  }

  async #read(): Promise<CacheView> {
    const kinds = (Object.keys(reads) as Kind[]).filter((kind) => this.#urlOf(kind) !== "");
    return Object.fromEntries(await Promise.all(kinds.map(async (kind) => [kind, await this.#server(kind)] as const)));
  }

  async #server(kind: Kind): Promise<CacheServer> {
    const url = this.#urlOf(kind);
    const found = await Promise.allSettled(reads[kind].map(async ({ name, path, as }) => [name, await readPart(url + path, as)] as const));
    const parts = found.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
    const [refused] = found.flatMap((each) => (each.status === "rejected" ? [asFailure(each.reason).message] : []));
    return { url, isUp: parts.length > 0, why: parts.length > 0 ? "" : (refused ?? ""), parts: Object.fromEntries(parts) };
  }

  /** Asks the indexer why each engine matches as far as it does. @throws INVALID_REQUEST, SERVER_UNREACHABLE. */
  async explain(body: Readonly<Record<string, unknown>>): Promise<unknown> {
    if (this.#urlOf("indexer") === "") fail("SERVER_UNREACHABLE", "the setting console.indexer_url names no indexer");
    const { text, status } = await send(`${this.#urlOf("indexer")}/explain`, { method: "POST", body: JSON.stringify(body), timeoutMs: ACT_MS });
    return status < 400 ? JSON.parse(text) : fail("INVALID_REQUEST", sentenceOf(text));
  }

  async act(name: unknown, id: unknown): Promise<unknown> {
    const act = typeof name === "string" && Object.hasOwn(acts, name) ? acts[name] : undefined;
    if (act === undefined) fail("ROUTE_NOT_FOUND", `act: expected one of ${Object.keys(acts).join(", ")}; got ${JSON.stringify(name)}`);
    if (typeof id !== "string" || id === "" || id.length > 256) fail("INVALID_REQUEST", "id: expected the id of a device, or the name of a standby");
    if (this.#urlOf(act.kind) === "") fail("SERVER_UNREACHABLE", `the setting console.${act.kind === "admin" ? "store_admin" : act.kind}_url names no server`);
    const { text, status } = await send(this.#urlOf(act.kind) + act.path(id), { method: "POST", body: "{}", timeoutMs: ACT_MS });
    return status < 400 ? { said: sentenceOf(text) } : fail("INVALID_REQUEST", sentenceOf(text));
  }
}

type Sending = { readonly method?: string; readonly body?: string; readonly timeoutMs: number };

async function send(url: string, { timeoutMs, ...rest }: Sending): Promise<{ readonly text: string; readonly status: number }> {
  const token = process.env["SVC_STORE_TOKEN"];
  const headers = { ...(rest.body === undefined ? {} : { "content-type": "application/json" }), ...(token ? { authorization: `Bearer ${token}` } : {}) };
  try {
    // A redirect would lead to an address that is not in the settings.
    const response = await fetch(url, { ...rest, headers, redirect: "error", signal: AbortSignal.timeout(timeoutMs) });
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of response.body ?? []) {
      bytes += chunk.length;
      if (bytes > MAX_BYTES) fail("PAYLOAD_TOO_LARGE", `${url} answered more than ${MAX_BYTES} bytes`);
      chunks.push(chunk);
    }
    return { text: Buffer.concat(chunks).toString("utf8"), status: response.status };
  } catch (error) {
    const { cause, message } = error as Error & { cause?: { code?: string } };
    return fail("SERVER_UNREACHABLE", `${new URL(url).origin} does not answer (${cause?.code ?? message})`, { cause: error });
  }
}

async function readPart(url: string, as: Part["as"]): Promise<unknown> {
  const { text, status } = await send(url, { timeoutMs: READ_MS });
  if (status >= 400) fail("INVALID_REQUEST", `${url} answered ${status}: ${sentenceOf(text)}`);
  return as === "json" ? JSON.parse(text) : metricsOf(text);
}

/** Returns the single values by name and labels; a histogram's buckets are of no use as text. */
function metricsOf(text: string): Record<string, number> {
  const found = text.matchAll(/^(svc_[a-z_]+(?<!_bucket|_sum|_count)(?:\{[^}]*\})?) ([0-9.eE+-]+)$/gm);
  return Object.fromEntries([...found].map(([, name = "", value]) => [name, Number(value)]));
}

/** Returns the sentence of an answer of one of these servers, whichever member it is in. */
function sentenceOf(text: string): string {
  try {
    const { error, message, error_message } = JSON.parse(text) as Record<string, unknown>;
    return String(message ?? error ?? error_message ?? "done").slice(0, 500);
  } catch {
    return text.slice(0, 300);
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
