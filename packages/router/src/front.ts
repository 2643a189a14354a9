// The front: takes each request, finds its engine, and sees it through to its last byte.
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Log } from "@svc/kit/log.ts";
import { sameSecret } from "@svc/kit/secret.ts";
import { engineNamed } from "./admin.ts";
import { type AttemptLimits, attempt, type Outcome, type Sent } from "./attempt.ts";
import type { Bodies, HeldBody } from "./bodies.ts";
import type { Engine } from "./engine.ts";
import { Known } from "./known.ts";
import type { Placed, Placement, Sought } from "./placement.ts";
import { type Prompt, type PromptKind, promptPaths, readPrompt } from "./prompt.ts";
import type { AdmissionQueue } from "./queue.ts";
import { Refusal, send } from "./refusals.ts";
import type { RouterMetrics } from "./router-metrics.ts";
import type { Tokenizer, Tokens } from "./tokens.ts";

/** Responses whose engine is remembered. */
const MAX_RESPONSES = 65_536;

export type FrontOptions = {
  readonly engines: readonly Engine[];
  readonly placement: Placement;
  readonly tokenizer: Tokenizer;
  readonly queue: AdmissionQueue<Placed>;
  readonly bodies: Bodies;
  readonly metrics: RouterMetrics;
  readonly limits: AttemptLimits;
  readonly apiKey: string;
  readonly explain: boolean;
  readonly log: Log;
};

export class Front {
  readonly #options: FrontOptions;
  readonly #responses = new Known<Engine>(MAX_RESPONSES);

  constructor(options: FrontOptions) {
    this.#options = options;
  }

  /** @throws Refusal for what the router answers itself */
  async handle(request: IncomingMessage, response: ServerResponse, path: string): Promise<void> {
    const startedMs = performance.now();
    const { bodies, metrics } = this.#options;
    this.#authenticate(request);
    const body = await bodies.read(request);
    const gone = new AbortController();
    const onClose = () => {
      if (!response.writableFinished) gone.abort();
    };
    response.once("close", onClose);
    try {
      const readMs = performance.now();
      const sought = await this.#seek(request, path, body.bytes);
      if (request.headers["x-svc-explain"] !== undefined) {
        const tokens = sought.tokens.tokens === undefined ? sought.tokens : { from: sought.tokens.from, count: sought.tokens.tokens.length };
        return send(response, 200, JSON.stringify({ ...this.#options.placement.explain(sought), tokens }, null, 1));
      }
      metrics.overhead.observe((performance.now() - readMs) / 1000);
      await this.#run(request, response, { sought, body, path, startedMs, signal: gone.signal });
    } finally {
      response.off("close", onClose);
      body.release();
    }
  }

  #authenticate({ headers }: IncomingMessage): void {
    const { apiKey } = this.#options;
    if (apiKey === "") return;
    const given = /^Bearer (.+)$/i.exec(headers.authorization ?? "")?.[1] ?? headers["x-api-key"] ?? "";
    if (!sameSecret(String(given), apiKey)) throw new Refusal("unauthorized", "expected the router's API key, as Authorization: Bearer or as x-api-key");
    // The router's key must not reach engines.
    delete headers.authorization;
    delete headers["x-api-key"];
  }

  async #seek(request: IncomingMessage, path: string, body: Buffer): Promise<Sought> {
    const { engines, placement, tokenizer, metrics } = this.#options;
    const kind: PromptKind = request.method === "POST" ? (promptPaths[path] ?? "other") : "other";
    const prompt = kind === "other" ? otherPrompt(request, body) : readPrompt(kind, body, header(request, "x-session-id"));
    const named = header(request, "x-svc-engine");
    const pinned = named === undefined ? this.#keeperOf(prompt, path) : engineNamed(engines, named);
    const fit = placement.servers(prompt.model).filter((engine) => engine.unfit === undefined);
    const asked = (pinned === undefined ? fit : [pinned]).toSorted((one, other) => one.waitingTokens - other.waitingTokens);
    const authorization = header(request, "authorization");
    const tokens: Tokens =
      prompt.previousResponse !== undefined
        ? { tokens: undefined, reason: "kind", detail: "the engine has the conversation's beginning" }
        : await tokenizer.tokensOf(prompt, path, asked, authorization === undefined ? {} : { authorization });
    if (tokens.tokens === undefined) {
      metrics.placed.inc({ tokens: "none" });
      if (kind !== "other" && kind !== "embeddings") metrics.tokensMissing.inc({ reason: tokens.reason });
    } else metrics.placed.inc({ tokens: tokens.from });
    const rows = tokens.tokens === undefined ? {} : await placement.rowsFor(prompt, tokens.tokens);
    // The parsed body is needed no longer; a long stream must not keep it.
    return { prompt: { ...prompt, body: {} }, tokens, bytes: body.length, rows, pinned };
  }

  /** The engine that keeps what the request continues or names. */
  #keeperOf({ previousResponse }: Prompt, path: string): Engine | undefined {
    const id = previousResponse ?? /^\/v1\/responses\/([^/]+)/.exec(path)?.[1];
    if (id === undefined || id === "render" || id === "compact") return undefined;
    const { engines } = this.#options;
    const keeper = this.#responses.get(id) ?? (engines.length === 1 ? engines[0] : undefined);
    if (keeper === undefined)
      throw new Refusal(
        "response_not_found",
        `the response ${JSON.stringify(id.slice(0, 100))} was not answered through this router since its start, so that its engine is not known: send the whole conversation as input`,
      );
    return keeper;
  }

  async #run(
    request: IncomingMessage,
    response: ServerResponse,
    run: { sought: Sought; body: HeldBody; path: string; startedMs: number; signal: AbortSignal },
  ) {
    const { placement, queue, metrics, limits, explain, log } = this.#options;
    const { sought, body, path, startedMs, signal } = run;
    const sent: Sent = { method: request.method ?? "GET", target: request.url ?? "/", headers: request.headers, body, path };
    const failed = new Set<Engine>();
    const queuedMs = performance.now();
    let placed = await queue.enter(() => placement.place(sought, failed), signal);
    metrics.queued.observe((performance.now() - queuedMs) / 1000);
    const mayRetry = () => failed.size === 0 && sought.pinned === undefined && hasOther(placement.servers(sought.prompt.model), placed.engine);
    for (;;) {
      const { engine } = placed;
      if (explain) log.info({ path, engine: engine.name, considered: placed.considered }, "placed");
      const onFirstByte = () => {
        placed.answered();
        body.release();
        metrics.firstByte.observe({ engine: engine.name }, (performance.now() - startedMs) / 1000);
      };
      let outcome: Outcome;
      try {
        outcome = await attempt({ sent, placed, response, limits, mayRetry, signal, onFirstByte });
      } finally {
        placed.end();
        queue.pump();
      }
      // A client whose deadline passed on one engine does not wait for a second one.
      if (outcome.end === "failed" && outcome.refusal.code !== "engine_timeout" && mayRetry() && !signal.aborted) {
        failed.add(engine);
        metrics.retries.inc({ engine: engine.name });
        log.warn({ engine: engine.name, path, reason: outcome.refusal.message }, "the request goes to another engine");
        placed = await queue.enter(() => placement.place(sought, failed), signal);
        continue;
      }
      return this.#finish(placed, sought, path, outcome);
    }
  }

  #finish(placed: Placed, sought: Sought, path: string, outcome: Outcome): void {
    const { metrics, log } = this.#options;
    const { engine, expectedCached } = placed;
    const label = path in promptPaths ? path : "other";
    const code = outcome.end === "gone" ? "client_gone" : outcome.end === "failed" ? String(outcome.refusal.status) : String(outcome.status);
    metrics.requests.inc({ path: label, engine: engine.name, code: outcome.end === "cut" ? "cut" : code });
    if (outcome.end === "failed") throw outcome.refusal;
    if (outcome.end === "cut") log.warn({ engine: engine.name, path, reason: outcome.why }, "the answer was cut");
    if (outcome.end !== "answered" || outcome.status !== 200) return;
    const responseID = path === "/v1/responses" ? outcome.scan.responseID() : undefined;
    if (responseID !== undefined) this.#responses.set(responseID, engine);
    if (expectedCached === undefined || sought.tokens.tokens === undefined) return;
    metrics.promptTokens.inc(sought.tokens.tokens.length);
    metrics.expectedTokens.inc(expectedCached);
    const { cachedTokens } = outcome.scan.usage();
    // The beginning of a conversation is less than the prompt: a difference would say nothing.
    if (cachedTokens === undefined || sought.tokens.from === "prefix") return;
    metrics.cachedTokens.inc(cachedTokens);
    const error = expectedCached - cachedTokens;
    metrics.predictionError.observe({ direction: error > 0 ? "over" : error < 0 ? "under" : "equal" }, Math.abs(error));
  }
}

function hasOther(servers: readonly Engine[], engine: Engine): boolean {
  return servers.some((other) => other !== engine && other.unfit === undefined);
}

function header({ headers }: IncomingMessage, name: string): string | undefined {
  const value = headers[name];
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** The model decides for paths that the router does not know, too, where there is one. */
function otherPrompt(request: IncomingMessage, body: Buffer): Prompt {
  let model: unknown;
  if (/json/.test(request.headers["content-type"] ?? "") && body.length > 0) {
    try {
      model = (JSON.parse(body.toString("utf8")) as { model?: unknown } | null)?.model;
    } catch {
      // The engine says what is wrong with it.
    }
  }
  const session = header(request, "x-session-id");
  return { kind: "other", model: typeof model === "string" && model !== "" ? model : undefined, body: {}, cacheSalt: "", session, previousResponse: undefined };
}
