// Requests of the doctor to servers of a deployment: each is bounded, and so are all of them together.
import { z } from "zod";
import type { Finding, Kind } from "./finding.ts";

/** A server that takes longer does not serve its clients either. */
const ANSWER_MS = 5_000;
const MAX_AT_ONCE = 64;
const MAX_BYTES = 64 * 1024 * 1024;

export type Answer = { readonly status: number; readonly text: string };
export type Request = { readonly method?: "POST"; readonly headers?: Readonly<Record<string, string>>; readonly body?: string };

export class Asker {
  readonly #end: AbortSignal;
  readonly #withinSeconds: number;
  #free = MAX_AT_ONCE;
  readonly #waiting: (() => void)[] = [];

  constructor(withinSeconds: number) {
    this.#withinSeconds = withinSeconds;
    this.#end = AbortSignal.timeout(withinSeconds * 1000);
  }

  /** @throws an Error whose message says why there is no answer. */
  async get(url: string, request: Request = {}): Promise<Answer> {
    if (this.#free === 0) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    else this.#free--;
    try {
      return await this.#send(url, request);
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free++;
      else next();
    }
  }

  /** @throws an Error also for a status above 399, and for an answer of another form. */
  async json<T>(url: string, shape: z.ZodType<T>, request: Request = {}): Promise<T> {
    const { status, text } = await this.get(url, request);
    if (status >= 400) throw new Error(`${new URL(url).pathname} answers ${status}: ${sentenceOf(text)}`);
    const parsed = shape.safeParse(jsonOf(text));
    if (!parsed.success) throw new Error(`${new URL(url).pathname} answers in a form that this version does not know: ${z.prettifyError(parsed.error)}`);
    return parsed.data;
  }

  async #send(url: string, request: Request): Promise<Answer> {
    if (this.#end.aborted) throw new Error(`was not asked: ${this.#withinSeconds} s were over (--timeout)`);
    const signal = AbortSignal.any([this.#end, AbortSignal.timeout(ANSWER_MS)]);
    try {
      const response = await fetch(url, { ...request, signal, redirect: "error" });
      const chunks: Uint8Array[] = [];
      let bytes = 0;
      for await (const chunk of response.body ?? []) {
        bytes += chunk.length;
        if (bytes > MAX_BYTES) throw new Error(`the answer is larger than ${MAX_BYTES} bytes`);
        chunks.push(chunk);
      }
      return { status: response.status, text: Buffer.concat(chunks).toString() };
    } catch (error) {
      if (signal.aborted) throw new Error("no answer in time", { cause: error });
      const { cause, message } = error as Error & { cause?: { code?: string; message?: string } };
      throw new Error(cause?.code ?? cause?.message ?? message, { cause: error });
    }
  }
}

export const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** The line for a server that does not answer. */
export function unreachable(kind: Kind, url: string, error: unknown): Finding {
  return { severity: "critical", where: `${kind} ${url}`, says: `does not answer (${reasonOf(error)})`, fix: `on its machine: ${starts[kind]}` };
}

const starts: Readonly<Record<Kind, string>> = {
  gateway: "systemctl restart svc-gateway",
  node: "systemctl restart svc-node",
  etcd: "systemctl restart etcd",
  "store master": "systemctl restart svc-store-master",
  "store service": "systemctl restart svc-store-service",
  "store admin": "systemctl restart svc-store-admin",
  metadata: "systemctl restart svc-metadata",
  indexer: "systemctl restart svc-indexer",
  router: "systemctl restart svc-router",
};

export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function sentenceOf(text: string): string {
  const { error, message, error_message } = (jsonOf(text) ?? {}) as Record<string, unknown>;
  const said = message ?? error_message ?? (typeof error === "object" && error !== null ? (error as { message?: unknown }).message : error) ?? text;
  return String(said).slice(0, 300);
}

/** The value of a metric without labels in a scrape; undefined if it is not there. */
export function metricIn(scrape: string, name: string): number | undefined {
  const value = new RegExp(`^${name} (\\S+)$`, "m").exec(scrape)?.[1];
  return value === undefined ? undefined : Number(value);
}
