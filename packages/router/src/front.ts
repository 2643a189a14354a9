// The front: takes each request, finds its engine, and sees it through to its last byte.

import type { Log } from "@svc/kit/log.ts";
import { sameSecret } from "@svc/kit/secret.ts";
import { type AttemptLimits, type AttemptOptions, attempt, type Sent } from "./attempt.ts";
import type { Bounds } from "./bounds.ts";
import { send } from "./client/answers.ts";
import type { ClientRequest } from "./client/request.ts";
import { before, exceeded, readDeadline } from "./deadline.ts";
import { Ending } from "./ending.ts";
import type { Engine } from "./engine.ts";
import { attemptPair, type PairOutcome } from "./pair.ts";
import type { Placed } from "./placed.ts";
import type { Placement, Sought } from "./placement.ts";
import { type Body, promptPaths } from "./prompt.ts";
import type { AdmissionQueue } from "./queue.ts";
import { Refusal } from "./refusals.ts";
import { countPrediction, type RouterMetrics } from "./router-metrics.ts";
import type { Seeker } from "./seek.ts";

export type FrontOptions = {
  readonly seeker: Seeker;
  readonly placement: Placement;
  readonly queue: AdmissionQueue<Placed>;
  readonly metrics: RouterMetrics;
  readonly limits: AttemptLimits;
  readonly bounds: Bounds;
  readonly apiKey: string;
  readonly explain: boolean;
  readonly log: Log;
};

export class Front {
  readonly #options: FrontOptions;

  constructor(options: FrontOptions) {
    this.#options = options;
  }

  /** True if clients need the router's own key. */
  get hasKey(): boolean {
    return this.#options.apiKey !== "";
  }

  /** @throws Refusal */
  authenticate(request: ClientRequest): void {
    const { apiKey } = this.#options;
    if (apiKey === "") return;
    const { headers } = request;
    const given = /^Bearer (.+)$/i.exec(headers["authorization"] ?? "")?.[1] ?? headers["x-api-key"] ?? "";
    if (!sameSecret(given, apiKey)) throw new Refusal("unauthorized", "expected the router's API key, as Authorization: Bearer or as x-api-key");
    request.forgetKey();
  }

  /** @throws Refusal for what the router answers itself */
  async handle(request: ClientRequest): Promise<void> {
    const { metrics, seeker, placement } = this.#options;
    const { body, path } = request;
    const deadline = readDeadline(request.headers);
    const ending = new Ending();
    const timer = deadline && setTimeout(() => ending.end(exceeded(deadline)), deadline.atMs - performance.now());
    request.onGone = () => ending.end();
    try {
      checkForm(request);
      const readMs = performance.now();
      const seeking = seeker.seek(request, path, body.bytes);
      const sought = seeking instanceof Promise ? await before(ending, seeking) : seeking;
      if (isExplained(request.headers["x-svc-explain"])) {
        const tokens = sought.tokens.tokens === undefined ? sought.tokens : { from: sought.tokens.from, count: sought.tokens.tokens.length };
        return send(request, 200, JSON.stringify({ ...placement.explain(sought), tokens }, null, 1));
      }
      metrics.overhead.observe((performance.now() - readMs) / 1000);
      await this.#run(sought, { request, body, deadline, lines: "" }, ending);
    } finally {
      clearTimeout(timer);
      body.release();
    }
  }

  async #run(sought: Sought, sent: Sent, ending: Ending): Promise<void> {
    const { placement, queue, metrics, limits, bounds, explain, log } = this.#options;
    const { request, body } = sent;
    const { path } = request;
    const failed = new Set<Engine>();
    const place = () => placement.place(sought, failed, explain);
    const enter = () => queue.now(place, sought.prompt.priority) ?? queue.enter(place, ending, sought.prompt.priority);
    const queuedMs = performance.now();
    const entered = enter();
    let placed = entered instanceof Promise ? await entered : entered;
    metrics.queued.observe((performance.now() - queuedMs) / 1000);
    const mayRetry = (failing = placed.engine) => failed.size === 0 && sought.pinned === undefined && placement.couldPlace(sought, new Set([failing]));
    for (;;) {
      const { engine } = placed;
      if (explain) log.info({ path, engine: engine.name, considered: placed.considered }, "placed");
      const onFirstByte = () => {
        placed.answered();
        body.release();
        metrics.firstByte.observe({ engine: engine.name }, (performance.now() - request.startedMs) / 1000);
      };
      let outcome: PairOutcome;
      try {
        const options: AttemptOptions = { sent, placed, limits, bounds, mayRetry: () => mayRetry(), ending, onFirstByte };
        const { prefill } = placed;
        outcome =
          prefill === undefined ? await attempt(options) : await attemptPair({ ...options, prefill, body: JSON.parse(body.bytes.toString("utf8")) as Body });
      } finally {
        placed.end();
        queue.pump();
      }
      // A client whose deadline passed on one engine does not wait for a second one.
      const failing = outcome.by ?? engine;
      if (outcome.end === "failed" && outcome.refusal.code !== "engine_timeout" && mayRetry(failing) && !ending.isOver) {
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

/** @throws Refusal for a value that says neither yes nor no: the request must not go out, or stay, by mistake. */
function isExplained(value: string | undefined): boolean {
  if (value === undefined || value === "" || value === "0" || value === "false") return false;
  if (value === "1" || value === "true") return true;
  throw new Refusal("invalid_request", `x-svc-explain: expected 1 or 0, got ${JSON.stringify(value.slice(0, 100))}`);
}

/** Refuses what would pass to any engine, whatever its model, because of a slip. @throws Refusal */
function checkForm({ path, method, headers }: ClientRequest): void {
  if (path.startsWith("//")) throw new Refusal("not_found", `expected a path such as ${path.replace(/^\/+/, "/").slice(0, 100)}, with one slash, got two`);
  if (method !== "POST" || !Object.hasOwn(promptPaths, path)) return;
  const encoding = headers["content-encoding"];
  if (encoding !== undefined && encoding !== "" && encoding !== "identity")
    throw new Refusal(
      "unsupported_encoding",
      `the body is compressed (content-encoding: ${encoding.slice(0, 100)}), which the router does not read; send it as it is`,
    );
}
