// The base of the client's parts: the deployment's URL and key, calls with their time limits, paged lists, open streams.
import { z } from "zod";
import { type Answer, callForAnswer, failureOf, noAnswer } from "./call.ts";
import { MISSING_NODES_HEADER } from "./cluster.ts";
import { Failure, fail } from "./failures.ts";
import { issueText } from "./issues.ts";
import type { Input, Operation, Output } from "./operation.ts";

export const DEFAULT_BASE_URL = "http://localhost:8000";

/** The timeout of calls that write or read a sandbox's memory. It is below the 300 s after which fetch itself gives up. */
export const LONG_CALL_MS = 290_000;

export type ClientOptions = {
  /** Default: the environment variable SDK_API_KEY. */
  readonly apiKey?: string | undefined;
  /** Default: http://localhost:8000 */
  readonly baseURL?: string | undefined;
  /** Timeout of one answer of the control plane; default 60,000, and 290,000 for pause, resume, fork and snapshots. */
  readonly timeoutMs?: number;
  /** Aborts every call that is in progress. */
  readonly signal?: AbortSignal;
  /** Called when a gateway's answer is incomplete because it could not query these nodes. */
  readonly onMissingNodes?: (nodes: readonly string[]) => void;
};

type PageOperation = Operation & { readonly output: { _zod: { output: readonly unknown[] } } };
type Item<T extends Operation> = Output<T> extends readonly (infer I)[] ? I : never;

export class Calls {
  readonly baseURL: string;
  readonly #apiKey: string | undefined;
  readonly #timeoutMs: number | undefined;
  readonly #signal: AbortSignal | undefined;
  readonly #onMissingNodes: ClientOptions["onMissingNodes"];

  constructor({ apiKey, baseURL, timeoutMs, signal, onMissingNodes }: ClientOptions) {
    this.baseURL = (baseURL ?? DEFAULT_BASE_URL).replace(/\/+$/, "");
    this.#apiKey = apiKey ?? process.env["SDK_API_KEY"];
    this.#timeoutMs = timeoutMs;
    this.#signal = signal;
    this.#onMissingNodes = onMissingNodes;
  }

  /** `longMs` is the timeout if the caller set none. */
  async call<T extends Operation>(operation: T, input: Input<T>, longMs?: number): Promise<Output<T>> {
    return (await this.answer(operation, input, longMs)).value;
  }

  async answer<T extends Operation>(operation: T, input: Input<T>, longMs?: number): Promise<Answer<T>> {
    try {
      const answer = await callForAnswer(operation, input, this.#options(operation, longMs));
      const missing = answer.headers.get(MISSING_NODES_HEADER);
      if (missing) this.#onMissingNodes?.(missing.split(","));
      return answer;
    } catch (error) {
      if (!(error instanceof z.ZodError || error instanceof SyntaxError)) throw error;
      const why = error instanceof z.ZodError ? issueText(error) : error.message;
      const text = `${this.baseURL} answered ${operation.name} in a form that this client does not know (${why}); is it a server of this platform, of the same version?`;
      throw new Failure("INTERNAL", text, { cause: error });
    }
  }

  /** Yields every item of a list. Pages are fetched as the loop advances; the header x-next-token names the next page. */
  async *pages<T extends PageOperation>(operation: T, input: Record<string, unknown>): AsyncGenerator<Item<T>> {
    let nextToken: string | undefined;
    do {
      const page = await this.answer(operation, { ...input, ...(nextToken === undefined ? {} : { nextToken }) } as unknown as Input<T>);
      yield* page.value as unknown as Iterable<Item<T>>;
      nextToken = page.headers.get("x-next-token") || undefined;
    } while (nextToken !== undefined);
  }

  /** Opens a GET whose answer is read as it arrives. `signal` ends it, and so does the client's own signal. */
  open(path: string, headers: Readonly<Record<string, string>>, signal: AbortSignal): Promise<Response> {
    return this.#fetch(path, { headers }, signal);
  }

  /** Sends a POST whose body is streamed. */
  send(path: string, body: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<Response> {
    return this.#fetch(
      path,
      { method: "POST", headers: { "content-type": "application/octet-stream" }, body: ReadableStream.from(body), duplex: "half" },
      signal,
    );
  }

  async #fetch(path: string, { headers, ...rest }: RequestInit & { duplex?: "half" }, signal: AbortSignal): Promise<Response> {
    const both = this.#signal === undefined ? signal : AbortSignal.any([signal, this.#signal]);
    let response: Response;
    try {
      response = await fetch(this.baseURL + path, { ...rest, headers: { ...(headers as Record<string, string>), "x-api-key": this.#key() }, signal: both });
    } catch (error) {
      if (both.aborted) throw error;
      throw noAnswer(this.baseURL, error);
    }
    if (!response.ok) throw failureOf(response.status, response.headers.get("retry-after"), await response.text());
    return response;
  }

  #options(operation: Operation, longMs: number | undefined) {
    const timeoutMs = this.#timeoutMs ?? longMs;
    return {
      baseURL: this.baseURL,
      ...(operation.credential === "none" ? {} : { apiKey: this.#key() }),
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
      ...(this.#signal === undefined ? {} : { signal: this.#signal }),
    };
  }

  #key(): string {
    return this.#apiKey ?? fail("UNAUTHENTICATED", "no API key: pass apiKey, or set SDK_API_KEY");
  }
}

/** Waits; rejects at once with the signal's reason when it is aborted. */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) return reject(signal.reason);
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

/** Returns true if a retry of the same request may succeed: the server is unreachable, stopping, or overloaded. */
export function mayPass(failure: Failure): boolean {
  return ["SERVER_UNREACHABLE", "SHUTTING_DOWN", "TIMED_OUT", "TOO_MANY_REQUESTS", "CAPACITY_EXHAUSTED"].includes(failure.name);
}
