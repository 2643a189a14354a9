// One small call to an engine or the indexer: a bounded answer within a bounded time.
import { type Agent, request } from "node:http";

export type Call = {
  readonly agent: Agent;
  /** http://HOST:PORT without a path. */
  readonly base: string;
  readonly method?: "GET" | "POST";
  readonly path: string;
  readonly body?: string | Uint8Array;
  readonly headers?: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
};
export type Answer = { readonly status: number; readonly text: string };

/** Longer answers are refused: tokens of a long prompt have some megabytes. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

/** @throws Error if nothing answers in time, or with more than the bound. */
export function call({ agent, base, method, path, body, headers = {}, timeoutMs, signal }: Call): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const length = body === undefined ? {} : { "content-length": String(Buffer.byteLength(body)) };
    const asking = request(base + path, { agent, method: method ?? (body === undefined ? "GET" : "POST"), headers: { ...headers, ...length } }, (response) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      response.on("data", (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes > MAX_ANSWER_BYTES) asking.destroy(new Error(`the answer has more than ${MAX_ANSWER_BYTES} bytes`));
        else chunks.push(chunk);
      });
      response.on("end", () => {
        clearTimeout(timer);
        if (response.complete) resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString("utf8") });
      });
      response.on("close", () => failed(new Error("the answer broke off")));
    });
    const failed = (error: Error) => {
      clearTimeout(timer);
      reject(error);
    };
    const timer = setTimeout(() => asking.destroy(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
    if (signal !== undefined) {
      if (signal.aborted) asking.destroy(new Error("the client is gone"));
      else signal.addEventListener("abort", () => asking.destroy(new Error("the client is gone")), { once: true });
    }
    asking.on("error", failed);
    asking.end(body);
  });
}
