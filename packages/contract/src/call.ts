// Calls an operation over HTTP: maps the input to path, query, headers and body, and answers and failures back to values.
import { Failure, type FailureName, failures } from "./failures.ts";
import { carriesBody, type Input, type Operation, type Output, pathMembers } from "./operation.ts";
import { tlsTrouble } from "./tls-trouble.ts";

export type CallOptions = {
  /** For example http://localhost:8000 */
  readonly baseURL: string;
  /** Sent as X-API-Key. */
  readonly apiKey?: string | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
  /** Further signals; passing them is cheaper than combining them with AbortSignal.any. */
  readonly signals?: readonly AbortSignal[];
  /** Default 60,000. */
  readonly timeoutMs?: number;
  /** How the request is sent; `fetch` by default. */
  readonly send?: Send;
};

export type Sending = {
  readonly url: string;
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | undefined;
  /** Any of these signals aborts the request. */
  readonly signals: readonly AbortSignal[];
  readonly timeoutMs: number;
};
export type Sent = { readonly status: number; readonly headers: Headers; readonly text: string };
/** Sends one request and reads its whole answer, whatever its status. @throws TIMED_OUT, or the reason why there is no answer. */
export type Send = (sending: Sending) => Promise<Sent>;

export type Answer<T> = { status: number; headers: Headers; value: Output<T> };

const DEFAULT_TIMEOUT_MS = 60_000;

/** Returns the operation's answer; throws Failure with the name that the server gave. */
export async function call<T extends Operation>(operation: T, input: Input<T>, options: CallOptions): Promise<Output<T>> {
  return (await callForAnswer(operation, input, options)).value;
}

/** Same as `call`, but also returns the status and the headers (for example x-next-token). */
export async function callForAnswer<T extends Operation>(operation: T, input: Input<T>, options: CallOptions): Promise<Answer<T>> {
  const { url, headers, body } = requestOf(operation, input as Record<string, unknown>, options);
  const { signal, signals = [], timeoutMs = DEFAULT_TIMEOUT_MS, send = (sending: Sending) => byFetch(sending) } = options;
  const all = signal === undefined ? signals : [...signals, signal];
  const sent = await send({ url, method: operation.method, headers, body, signals: all, timeoutMs }).catch((error: unknown) => {
    throw error instanceof Failure ? error : noAnswer(options.baseURL, error);
  });
  const { status, text } = sent;
  if (status < 200 || status > 299) throw failureOf(status, sent.headers.get("retry-after"), text);
  const value = operation.output.parse(text === "" ? undefined : JSON.parse(text)) as Output<T>;
  return {
    status,
    value,
    get headers() {
      return sent.headers;
    },
  };
}

/** Sends by this `fetch`. */
export function sendBy(fetch: typeof globalThis.fetch): Send {
  return (sending) => byFetch(sending, fetch);
}

async function byFetch({ url, method, headers, body, signals, timeoutMs }: Sending, fetch = globalThis.fetch): Promise<Sent> {
  const timeout = AbortSignal.timeout(timeoutMs);
  const signal = signals.length === 0 ? timeout : AbortSignal.any([timeout, ...signals]);
  try {
    const response = await fetch(url, { method, headers, signal, ...(body === undefined ? {} : { body }) });
    return { status: response.status, headers: response.headers, text: await response.text() };
  } catch (error) {
    if (timeout.aborted) throw new Failure("TIMED_OUT", `${method} ${url}: no answer in time`, { cause: error });
    throw error;
  }
}

function requestOf(operation: Operation, input: Record<string, unknown>, options: CallOptions) {
  const inPath = pathMembers(operation.path);
  const headers: Record<string, string> = { accept: "application/json", ...options.headers };
  if (options.apiKey !== undefined) headers["x-api-key"] = options.apiKey;
  const rest: Record<string, unknown> = {};
  for (const [member, value] of Object.entries(input)) {
    if (value === undefined || inPath.includes(member)) continue;
    const header = operation.headers?.[member];
    if (header === undefined) rest[member] = value;
    else headers[header] = String(value);
  }
  const path = operation.path.replace(/\{(\w+)\}/g, (_, member: string) => encodeURIComponent(String(input[member])));
  const url = new URL(options.baseURL.replace(/\/+$/, "") + path);
  // A DELETE whose members are all in its path has no body, since some proxies reject an empty one.
  if (carriesBody(operation.method) && (operation.method !== "DELETE" || Object.keys(rest).length > 0)) {
    headers["content-type"] = "application/json";
    return { url: url.href, headers, body: JSON.stringify(rest) };
  }
  for (const [member, value] of Object.entries(rest)) for (const each of [value].flat()) url.searchParams.append(member, String(each));
  return { url: url.href, headers, body: undefined };
}

/** Builds the failure of an error answer: the server's own name where it gives one, else a name by status. */
export function failureOf(status: number, retryAfterHeader: string | null | undefined, text: string): Failure {
  const body = parseBody(text);
  const message = typeof body["message"] === "string" ? body["message"] : `HTTP ${status}: ${text.slice(0, 300)}`;
  const retryAfter = Number(retryAfterHeader);
  const { code: _code, message: _message, error_code: name, ...rest } = body;
  const details = Object.fromEntries(Object.entries(rest).filter((entry): entry is [string, string | number] => /^(string|number)$/.test(typeof entry[1])));
  return new Failure(nameOf(name, status), message, { details, ...(retryAfter > 0 ? { retryAfterSeconds: retryAfter } : {}) });
}

function parseBody(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function nameOf(code: unknown, status: number): FailureName {
  if (typeof code === "string" && Object.hasOwn(failures, code)) return code as FailureName;
  const named = Object.entries(failures).find(([, row]) => row.http === status);
  return (named?.[0] ?? "INTERNAL") as FailureName;
}

/** These codes mean that an established connection broke, so the server may have begun to execute the request. */
const broken: readonly string[] = ["UND_ERR_SOCKET", "ECONNRESET", "EPIPE"];

/** The failure of a fetch without an answer. `details.outcome` is "unknown" if the server may have executed the request. */
export function noAnswer(baseURL: string, error: unknown): Failure {
  const trouble = tlsTrouble(error);
  if (trouble !== undefined) return new Failure("SERVER_UNREACHABLE", `no secure connection to ${baseURL}: ${trouble}`, { cause: error, details: { tls: 1 } });
  const reason = reasonOf(error);
  if (!broken.includes(codeOf(error)))
    return new Failure("SERVER_UNREACHABLE", `no server answers at ${baseURL} (${reason}); is it running, and is the URL right?`, { cause: error });
  const text = `${baseURL} broke the connection off without an answer (${reason}); the request may have been carried out: look before you send it again`;
  return new Failure("SERVER_UNREACHABLE", text, { cause: error, details: { outcome: "unknown" } });
}

/** A short reason why a request got no answer: the code of the system's error, in words where it is one that users meet. */
export function reasonOf(error: unknown): string {
  const code = codeOf(error);
  const words = reasonWords[code];
  return words === undefined ? code : `${words}, ${code}`;
}

const reasonWords: Readonly<Record<string, string>> = {
  ECONNREFUSED: "nothing listens there",
  ECONNRESET: "the other side closed the connection",
  EPIPE: "the other side closed the connection",
  UND_ERR_SOCKET: "the other side closed the connection",
  ENOTFOUND: "the name is unknown",
  EHOSTUNREACH: "the machine cannot be reached",
  ETIMEDOUT: "the machine does not answer",
};

function codeOf(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  if (!(cause instanceof Error)) return String(cause);
  // The code of an aborted request is a number that says nothing.
  return "code" in cause && typeof cause.code === "string" ? cause.code : cause.message;
}
