// The router's metrics: where requests go, what was expected of them, and what came true.
import type { Metrics } from "@svc/kit/metrics.ts";
import type { Engine } from "./engine.ts";
import type { Tokens } from "./tokens.ts";

const TOKEN_BUCKETS = [0, 16, 64, 256, 1_024, 4_096, 16_384, 65_536];

/** Compares what was expected with what an engine's usage says; undefined: it is not known. */
export function countPrediction(metrics: RouterMetrics, tokens: Tokens, expected: number | undefined, cached: number | undefined): void {
  if (expected === undefined || tokens.tokens === undefined) return;
  metrics.promptTokens.inc(tokens.tokens.length);
  metrics.expectedTokens.inc(expected);
  // The beginning of a conversation is less than the prompt: a difference would say nothing.
  if (cached === undefined || tokens.from === "prefix") return;
  metrics.cachedTokens.inc(cached);
  const error = expected - cached;
  metrics.predictionError.observe({ direction: error > 0 ? "over" : error < 0 ? "under" : "equal" }, Math.abs(error));
}

export type RouterMetrics = ReturnType<typeof openRouterMetrics>;

export type RouterState = {
  readonly engines: readonly Engine[];
  readonly queueLength: () => number;
  readonly heldBytes: () => number;
  /** Sources of discovery, and those that cannot be read. */
  readonly sources: readonly string[];
  readonly troubles: ReadonlyMap<string, string>;
};

export function openRouterMetrics(metrics: Metrics, state: RouterState) {
  metrics.gauge("svc_router_engine_fit", "1 if requests may go to the engine", ["engine"], (gauge) => {
    for (const engine of state.engines) gauge.set({ engine: engine.name }, engine.unfit === undefined ? 1 : 0);
  });
  metrics.gauge("svc_router_source_failed", "1 if this source of discovery cannot be read, so that its last engines stay", ["source"], (gauge) => {
    for (const source of state.sources) gauge.set({ source }, state.troubles.has(source) ? 1 : 0);
  });
  metrics.gauge("svc_router_engine_in_flight", "Requests sent to the engine that are not over", ["engine"], (gauge) => {
    for (const engine of state.engines) gauge.set({ engine: engine.name }, engine.inFlight);
  });
  metrics.gauge("svc_router_engine_waiting_tokens", "Tokens to prefill of requests without a first answer byte", ["engine"], (gauge) => {
    for (const engine of state.engines) gauge.set({ engine: engine.name }, engine.waitingTokens);
  });
  metrics.gauge("svc_router_queued_requests", "Requests that wait for an engine with room", [], (gauge) => gauge.set(state.queueLength()));
  metrics.gauge("svc_router_held_bytes", "Request bodies held in memory", [], (gauge) => gauge.set(state.heldBytes()));
  return {
    requests: metrics.counter("svc_router_requests_total", "Requests that are over, by path, engine and status", ["path", "engine", "code"]),
    refused: metrics.counter("svc_router_refused_total", "Requests that the router answered with an error of its own", ["code"]),
    retries: metrics.counter("svc_router_retries_total", "Requests sent to a second engine, by the engine that failed", ["engine"]),
    circuits: metrics.counter("svc_router_circuit_changes_total", "Changes of an engine's circuit", ["engine", "state"]),
    placed: metrics.counter("svc_router_placements_total", "Placements, by where the prompt's tokens came from; none: by load alone", ["tokens"]),
    tokensMissing: metrics.counter("svc_router_tokens_missing_total", "Prompts placed by load alone since their tokens are not known", ["reason"]),
    indexerFailures: metrics.counter("svc_router_indexer_failures_total", "Questions that the indexer did not answer in time"),
    promptTokens: metrics.counter("svc_router_prompt_tokens_total", "Tokens of prompts whose tokens are known"),
    expectedTokens: metrics.counter("svc_router_expected_cached_tokens_total", "Of those, tokens expected in the engine's cache"),
    cachedTokens: metrics.counter("svc_router_cached_tokens_total", "Cached tokens that engines reported in their usage"),
    predictionError: metrics.tokens(
      "svc_router_prediction_error_tokens",
      "Difference between the cached tokens that an engine reports and those expected; over: fewer than expected",
      TOKEN_BUCKETS,
      ["direction"],
    ),
    overhead: metrics.seconds("svc_router_overhead_seconds", "Time from a request's last byte to its start on an engine, without the queue"),
    queued: metrics.seconds("svc_router_queue_seconds", "Time that requests waited for an engine with room"),
    firstByte: metrics.seconds("svc_router_first_byte_seconds", "Time from a request's head to its first answer byte", ["engine"]),
  };
}
