// Handles one request of a gateway. It collects the messages of the request until the body is whole and then names an engine; from the messages of the
// answer it learns when the engine began and how many tokens it had cached.
import type { HeldBody } from "../bodies.ts";
import type { RequestHeaders } from "../client/request.ts";
import type { Placed } from "../placed.ts";
import { Refusal } from "../refusals.ts";
import { AnswerScan } from "../usage.ts";
import type { CommonResponse, HeaderMap, HttpBody, ProcessingRequest, ProcessingResponse, Value } from "./messages.ts";

/** The names of the Gateway API Inference Extension. */
export const DESTINATION = "x-gateway-destination-endpoint";
export const SUBSET = "x-gateway-destination-endpoint-subset";
const SUBSET_NAMESPACE = "envoy.lb.subset_hint";
const METADATA_NAMESPACE = "envoy.lb";
/** A gateway's decode engine reads from this header who computes the prompt for it. */
const PREFILL = "x-prefiller-host-port";
/** Envoy takes pieces of a streamed body up to 64 KiB. */
const PIECE_BYTES = 62 * 1024;
/** OVERWRITE_IF_EXISTS_OR_ADD. */
const OVERWRITE = 2;

export type Picked = { readonly placed: Placed; readonly destination: string; readonly fallbacks: readonly string[]; readonly prefill: string | undefined };
export type ExchangeOptions = {
  /** Collects the body within the router's bounds. @throws Refusal */
  readonly hold: (chunks: AsyncIterable<Buffer>) => Promise<HeldBody>;
  /** `among`: the only destinations that may be named; undefined: all. @throws Refusal */
  readonly pick: (request: { method: string; path: string; headers: RequestHeaders; body: Buffer; among: readonly string[] | undefined }) => Promise<Picked>;
  readonly send: (response: ProcessingResponse) => void;
  readonly onError: (error: Error) => void;
  readonly onOver: (picked: Picked, scan: AnswerScan, status: number) => void;
};

export class Exchange {
  readonly #options: ExchangeOptions;
  readonly #scan = new AnswerScan();
  #chunks: ((chunk: Buffer | undefined) => void) | undefined;
  #picked: Picked | undefined;
  #status = 0;
  #hasTrailers = false;

  constructor(options: ExchangeOptions) {
    this.#options = options;
  }

  take(message: ProcessingRequest): void {
    const { send } = this.#options;
    if (message.requestHeaders !== undefined) {
      const { headers, endOfStream = false } = message.requestHeaders;
      const queue: (Buffer | undefined)[] = [];
      const body = bodyOf(queue, (push) => {
        this.#chunks = push;
      });
      if (endOfStream) this.#chunks?.(undefined);
      void this.#decide(readHeaders(headers), subsetOf(message), body, endOfStream);
    } else if (message.requestBody !== undefined) {
      this.#push(message.requestBody);
    } else if (message.requestTrailers !== undefined) {
      this.#chunks?.(undefined);
      this.#hasTrailers = true;
    } else if (message.responseHeaders !== undefined) {
      this.#status = Number(readHeaders(message.responseHeaders.headers)[":status"] ?? 0);
      const { placed } = this.#picked ?? {};
      const served = placed === undefined ? [] : [["x-svc-instance", placed.engine.name] as const];
      const expected = placed?.expectedCached === undefined ? [] : [["x-svc-expected-cached-tokens", String(placed.expectedCached)] as const];
      send({ responseHeaders: { response: { headerMutation: mutation([...served, ...expected]) } } });
    } else if (message.responseBody !== undefined) {
      const { body = empty, endOfStream = false } = message.responseBody;
      if (body.length > 0) {
        this.#picked?.placed.answered();
        if (this.#status < 500) this.#picked?.placed.engine.succeeded();
        this.#scan.take(body);
      }
      for (const piece of pieces(body, endOfStream)) send({ responseBody: { response: piece } });
    } else if (message.responseTrailers !== undefined) send({ responseTrailers: {} });
  }

  #push({ body = empty, endOfStream = false }: HttpBody): void {
    if (body.length > 0) this.#chunks?.(body);
    if (endOfStream) this.#chunks?.(undefined);
  }

  /** The gateway is done with the request, or gave it up. */
  end(): void {
    this.#chunks?.(undefined);
    const picked = this.#picked;
    this.#picked = undefined;
    if (picked === undefined) return;
    picked.placed.end();
    this.#options.onOver(picked, this.#scan, this.#status);
  }

  async #decide(headers: RequestHeaders, among: readonly string[] | undefined, chunks: AsyncIterable<Buffer>, isBodiless: boolean): Promise<void> {
    const { hold, pick, send, onError } = this.#options;
    let held: HeldBody | undefined;
    try {
      held = await hold(chunks);
      const [path = "/"] = (headers[":path"] ?? "/").split("?");
      const picked = await pick({ method: headers[":method"] ?? "GET", path, headers, body: held.bytes, among });
      this.#picked = picked;
      const endpoints = [picked.destination, ...picked.fallbacks].join(",");
      const set: [string, string][] = [[DESTINATION, endpoints]];
      if (picked.prefill !== undefined) set.push([PREFILL, picked.prefill]);
      send({
        requestHeaders: { response: { headerMutation: mutation(set), clearRouteCache: true } },
        dynamicMetadata: { fields: { [METADATA_NAMESPACE]: { structValue: { fields: { [DESTINATION]: { stringValue: endpoints } } } } } },
      });
      if (!isBodiless) for (const piece of pieces(held.bytes, !this.#hasTrailers)) send({ requestBody: { response: piece } });
      if (this.#hasTrailers) send({ requestTrailers: {} });
    } catch (error) {
      const refusal = error instanceof Refusal ? error : new Refusal("internal", "internal error; the router's log says why");
      const retry: [string, string][] =
        refusal.retryAfterSeconds === undefined ? [] : [["retry-after", String(Math.max(1, Math.ceil(refusal.retryAfterSeconds)))]];
      send({
        immediateResponse: {
          status: { code: refusal.status },
          headers: mutation([["content-type", "application/json"], ...retry]),
          body: Buffer.from(refusal.body()),
          details: refusal.code,
        },
      });
      if (!(error instanceof Refusal)) onError(error as Error);
    } finally {
      held?.release();
    }
  }
}

const empty = Buffer.alloc(0);

const mutation = (headers: readonly (readonly [string, string])[]) => ({
  setHeaders: headers.map(([key, value]) => ({ header: { key, rawValue: Buffer.from(value) }, appendAction: OVERWRITE })),
});

function pieces(body: Buffer, endOfStream: boolean): CommonResponse[] {
  const out: CommonResponse[] = [];
  for (let at = 0; at < body.length || at === 0; at += PIECE_BYTES) {
    const isLast = at + PIECE_BYTES >= body.length;
    out.push({ bodyMutation: { streamedResponse: { body: body.subarray(at, at + PIECE_BYTES), endOfStream: isLast && endOfStream } } });
  }
  return out;
}

/** Envoy sends a header's value as bytes, others as text. */
export function readHeaders(map: HeaderMap | undefined): RequestHeaders {
  const read: Record<string, string> = {};
  for (const { key, value, rawValue } of map?.headers ?? []) {
    const text = rawValue !== undefined && rawValue.length > 0 ? rawValue.toString("utf8") : (value ?? "");
    const name = key.toLowerCase();
    read[name] = read[name] === undefined ? text : `${read[name]}, ${text}`;
  }
  return read;
}

/** The destinations that the gateway allows; undefined: all that are known. */
function subsetOf({ metadataContext }: ProcessingRequest): readonly string[] | undefined {
  const value = metadataContext?.filterMetadata?.[SUBSET_NAMESPACE]?.fields?.[SUBSET];
  if (value === undefined) return undefined;
  const texts = value.listValue?.values?.map((one: Value) => one.stringValue ?? "") ?? (value.stringValue ?? "").split(",");
  return texts.map((one) => one.trim()).filter((one) => one !== "");
}

/** A body whose pieces come one by one; `undefined` ends it. */
function bodyOf(queue: (Buffer | undefined)[], open: (push: (chunk: Buffer | undefined) => void) => void): AsyncIterable<Buffer> {
  let wake: () => void = () => {};
  open((chunk) => {
    queue.push(chunk);
    wake();
  });
  return {
    async *[Symbol.asyncIterator]() {
      for (;;) {
        while (queue.length > 0) {
          const chunk = queue.shift();
          if (chunk === undefined) return;
          yield chunk;
        }
        await new Promise<void>((resolve) => {
          wake = resolve;
          if (queue.length > 0) resolve();
        });
      }
    },
  };
}
