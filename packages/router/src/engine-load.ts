// Reads an engine's load from its Prometheus metrics, by vLLM's and SGLang's names.

export type EngineLoad = {
  readonly running: number;
  readonly waiting: number;
  /** From 0 to 1. */
  readonly kvUsage: number;
  /** The router's own requests in flight when these numbers were read: the engine counts them, too. */
  readonly ownInFlight: number;
};

const names: Readonly<Record<string, "running" | "waiting" | "kvUsage">> = {
  "vllm:num_requests_running": "running",
  "vllm:num_requests_waiting": "waiting",
  "vllm:kv_cache_usage_perc": "kvUsage",
  "vllm:gpu_cache_usage_perc": "kvUsage",
  "sglang:num_running_reqs": "running",
  "sglang:num_queue_reqs": "waiting",
  "sglang:token_usage": "kvUsage",
};

/** Requests of all data-parallel ranks add up; of their usage the fullest counts. Undefined if the text has none of them. */
export function readLoad(text: string): Pick<EngineLoad, "running" | "waiting" | "kvUsage"> | undefined {
  const load = { running: 0, waiting: 0, kvUsage: 0 };
  let found = false;
  for (const [, name = "", value = ""] of text.matchAll(/^((?:vllm|sglang):\w+)(?:\{[^\n]*\})? +([0-9.eE+-]+)/gm)) {
    const member = names[name];
    const number = Number(value);
    if (member === undefined || !Number.isFinite(number) || number < 0) continue;
    found = true;
    if (member === "kvUsage") load.kvUsage = Math.max(load.kvUsage, Math.min(1, number));
    else load[member] += number;
  }
  return found ? load : undefined;
}
