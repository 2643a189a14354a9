// The front: takes each request, finds its engine, and sees it through to its last byte.
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Log } from "@svc/kit/log.ts";
import { sameSecret } from "@svc/kit/secret.ts";
import { type AttemptLimits, attempt, type Sent } from "./attempt.ts";
import type { Bodies, HeldBody } from "./bodies.ts";
import { before, type Deadline, exceeded, readDeadline } from "./deadline.ts";
import type { Engine } from "./engine.ts";
import { attemptPair, type PairOutcome } from "./pair.ts";
import type { Placed, Placement, Sought } from "./placement.ts";
import { type Body, promptPaths } from "./prompt.ts";
import type { AdmissionQueue } from "./queue.ts";
import { Refusal, send } from "./refusals.ts";
import { countPrediction, type RouterMetrics } from "./router-metrics.ts";
import type { Seeker } from "./seek.ts";

export type FrontOptions = {
  readonly seeker: Seeker;
  readonly placement: Placement;
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

  constructor(options: FrontOptions) {
    this.#options = options;
  }

  /** @throws Refusal for what the router answers itself */
  async handle(request: IncomingMessage, response: ServerResponse, path: string): Promise<void> {
    const startedMs = performance.now();
    const { bodies, metrics } = this.#options;
    this.#authenticate(request);
    const deadline = readDeadline(request.headers);
    const body = await bodies.read(request);
    const gone = new AbortController();
    const timer = deadline && setTimeout(() => gone.abort(exceeded(deadline)), deadline.atMs - performance.now());
    const onClose = () => {
      if (!response.writableFinished) gone.abort();
    };
    response.once("close", onClose);
    try {
      const readMs = performance.now();
      const sought = await before(gone.signal, this.#options.seeker.seek(request, path, body.bytes));
      if (request.headers["x-svc-explain"] !== undefined) {
        const tokens = sought.tokens.tokens === undefined ? sought.tokens : { from: sought.tokens.from, count: sought.tokens.tokens.length };
        return send(response, 200, JSON.stringify({ ...this.#options.placement.explain(sought), tokens }, null, 1));
      }
      metrics.overhead.observe((performance.now() - readMs) / 1000);
      await this.#run(request, response, { sought, body, path, startedMs, deadline, signal: gone.signal });
    } finally {
      clearTimeout(timer);
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

  async #run(
    request: IncomingMessage,
    response: ServerResponse,
    run: { sought: Sought; body: HeldBody; path: string; startedMs: number; deadline: Deadline | undefined; signal: AbortSignal },
  ) {
    const { placement, queue, metrics, limits, explain, log } = this.#options;
    const { sought, body, path, startedMs, deadline, signal } = run;
    const sent: Sent = { method: request.method ?? "GET", target: request.url ?? "/", headers: request.headers, body, path, deadline };
    const failed = new Set<Engine>();
    const queuedMs = performance.now();
    const enter = () => queue.enter(() => placement.place(sought, failed, explain), signal, sought.prompt.priority);
    let placed = await enter();
    metrics.queued.observe((performance.now() - queuedMs) / 1000);
    const mayRetry = (failing = placed.engine) => failed.size === 0 && sought.pinned === undefined && placement.couldPlace(sought, new Set([failing]));
    for (;;) {
      const { engine } = placed;
      if (explain) log.info({ path, engine: engine.name, considered: placed.considered }, "placed");
      const onFirstByte = () => {
        placed.answered();
        body.release();
        metrics.firstByte.observe({ engine: engine.name }, (performance.now() - startedMs) / 1000);
      };
      let outcome: PairOutcome;
      try {
        const options = { sent, placed, response, limits, mayRetry: () => mayRetry(), signal, onFirstByte };
        const { prefill } = placed;
        outcome =
          prefill === undefined ? await attempt(options) : await attemptPair({ ...options, prefill, body: JSON.parse(body.bytes.toString("utf8")) as Body });
      } finally {
        placed.end();
        queue.pump();
      }
      // A client whose deadline passed on one engine does not wait for a second one.
      const failing = outcome.by ?? engine;
      if (outcome.end === "failed" && outcome.refusal.code !== "engine_timeout" && mayRetry(failing) && !signal.aborted) {
        failed.add(failing);
        metrics.retries.inc({ engine: failing.name });
        log.warn({ engine: engine.name, path, reason: outcome.refusal.message }, "the request goes to another engine");
        placed = await enter();
        continue;
      }
      return this.#finish(placed, sought, path, outcome);
    }
  }

  #finish(placed: Placed, sought: Sought, path: string, outcome: PairOutcome): void {
    const { seeker, metrics, log } = this.#options;
    const { engine, expectedCached } = placed;
    const label = path in promptPaths ? path : "other";
    const code = outcome.end === "gone" ? "client_gone" : outcome.end === "failed" ? String(outcome.refusal.status) : String(outcome.status);
    metrics.requests.inc({ path: label, engine: engine.name, code: outcome.end === "cut" ? "cut" : code });
    if (outcome.end === "failed") throw outcome.refusal;
    if (outcome.end === "cut") log.warn({ engine: engine.name, path, reason: outcome.why }, "the answer was cut");
    if (outcome.end !== "answered" || outcome.status !== 200) return;
    const responseID = path === "/v1/responses" ? outcome.scan.responseID() : undefined;
    if (responseID !== undefined) seeker.keeps(responseID, engine);
    // In a pair, the engine that answers took everything from the other one.
    const cachedTokens = placed.prefill === undefined ? outcome.scan.usage().cachedTokens : outcome.cachedTokens;
    countPrediction(metrics, sought.tokens, expectedCached, cachedTokens);
  }
}
