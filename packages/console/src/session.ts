// The session: signing in and out, and calls to the server. A session has two halves: the page keeps one, and the other is a cookie that scripts
// cannot read.
import { signal } from "@preact/signals";
import type { ConsoleSession } from "@svc/contract/console.ts";

const HALF = "svc-console-half";
/** Must equal CONSOLE_HEADER of the contract. */
const HEADER = "x-svc-console";

export type Signed =
  | { readonly state: "unknown" }
  | { readonly state: "out"; readonly why: string }
  | { readonly state: "in"; readonly session: ConsoleSession };
export const signed = signal<Signed>({ state: "unknown" });
/** The time by which the server's clock is ahead of the browser's. */
export let skewMs = 0;

export class Failed extends Error {
  readonly code: string;
  readonly status: number;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function half(): string {
  return localStorage.getItem(HALF) ?? "";
}

export async function begin(): Promise<void> {
  const once = /^#once=([\w-]+)$/.exec(location.hash)?.[1];
  if (once !== undefined) {
    history.replaceState(null, "", location.pathname + location.search);
    try {
      return await signIn({ once });
    } catch (error) {
      // A link that was already used is an error only if the page is not signed in.
      if (half() === "") return void (signed.value = { state: "out", why: messageOf(error) });
    }
  }
  if (half() === "") signed.value = { state: "out", why: "" };
  else await refresh();
}

export async function signIn(given: { readonly key?: string; readonly once?: string }): Promise<void> {
  const answer = await request<{ half: string }>("sign-in", given);
  localStorage.setItem(HALF, answer.half);
  await refresh();
}

export async function signOut(): Promise<void> {
  await request("sign-out", {}).catch(() => undefined);
  localStorage.removeItem(HALF);
  signed.value = { state: "out", why: "" };
}

export async function refresh(): Promise<void> {
  try {
    const session = await request<ConsoleSession>("session");
    skewMs = session.now - Date.now();
    signed.value = { state: "in", session };
  } catch (error) {
    if (signed.value.state === "unknown" && !(error instanceof Failed && error.status === 401)) {
      signed.value = { state: "out", why: messageOf(error) };
    }
  }
}

/** Another tab has signed in or out. */
addEventListener("storage", ({ key }) => {
  if (key === HALF) void begin();
});

export function ended(why = "Your session is over. Sign in again."): void {
  if (signed.value.state === "out") return;
  localStorage.removeItem(HALF);
  signed.value = { state: "out", why };
}

/** Calls an operation of the server by its name. */
export async function call<T>(operation: string, input: Readonly<Record<string, unknown>> = {}): Promise<T> {
  return await request<T>("call", { operation, input });
}

/** Calls a list operation until its last page, or up to `most` items. */
export async function pages<T>(operation: string, input: Readonly<Record<string, unknown>> = {}, most = 2_000): Promise<T[]> {
  const items: T[] = [];
  let nextToken: string | undefined;
  do {
    const response = await send("call", { operation, input: { ...input, ...(nextToken === undefined ? {} : { nextToken }) } });
    items.push(...((await response.json()) as T[]));
    nextToken = response.headers.get("x-next-token") ?? undefined;
  } while (nextToken !== undefined && items.length < most);
  return items;
}

/** Calls a route of the console: GET without a body, POST with one. */
export async function request<T>(route: string, body?: object): Promise<T> {
  return (await (await send(route, body)).json()) as T;
}

const SENDS = 8;
const AGAIN_MS = 200;

/**
 * A browser drops pending requests when a network interface of its machine appears or disappears, as each sandbox's does on the server's machine. Requests that
 * change nothing are therefore sent again.
 */
function isRepeatable(route: string, body: object | undefined): boolean {
  if (body === undefined) return true;
  if (route === "sign-in") return !("once" in body);
  return route === "call" && "operation" in body && /^(get|list)/.test(String(body.operation));
}

export async function send(route: string, body?: object | Blob): Promise<Response> {
  const isFile = body instanceof Blob;
  const headers: Record<string, string> = { [HEADER]: half() };
  if (body !== undefined) headers["content-type"] = isFile ? "application/octet-stream" : "application/json";
  const options: RequestInit = {
    method: body === undefined ? "GET" : "POST",
    headers,
    credentials: "same-origin",
    ...(body === undefined ? {} : { body: isFile ? body : JSON.stringify(body) }),
  };
  let response: Response | undefined;
  for (let attempt = isRepeatable(route, body) ? 1 : SENDS; response === undefined && attempt <= SENDS; attempt++) {
    response = await fetch(`/console/api/${route}`, options).catch(() => undefined);
    if (response === undefined && attempt < SENDS) await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
  if (response === undefined) {
    throw new Failed(0, "SERVER_UNREACHABLE", "the server does not answer; it may be restarting, and the page tries again");
  }
  if (response.ok) return response;
  const text = await response.text();
  let failure: { message?: string; error_code?: string } = {};
  try {
    failure = JSON.parse(text) as typeof failure;
  } catch {
    // A proxy between the page and the server may answer with something that is not JSON.
  }
  if (response.status === 401 && route !== "sign-in") ended();
  throw new Failed(response.status, failure.error_code ?? "", failure.message ?? `the server answered ${response.status}`);
}

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
export const serverNow = (): number => Date.now() + skewMs;
/** False on a master and an indexer, whose console shows the cache alone. */
export const servesSandboxes = ({ kind }: ConsoleSession): boolean => kind === "node" || kind === "gateway";
export const isReadOnly = (): boolean => signed.value.state === "in" && signed.value.session.isReadOnly;
