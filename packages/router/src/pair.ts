// One request on two engines: one computes the prompt, the other takes its KV cache and answers. Their requests carry the parameters that
// vLLM's and SGLang's connectors define.

import { randomInt, randomUUID } from "node:crypto";
import { type AttemptOptions, attempt, type Outcome } from "./attempt.ts";
import { HeldBody } from "./bodies.ts";
import { type Answer, call } from "./call.ts";
import { send } from "./client/answers.ts";
import { DEADLINE_HEADER, leftOf } from "./deadline.ts";
import { Ending } from "./ending.ts";
import type { Engine } from "./engine.ts";
import type { Placed } from "./placed.ts";
import type { Body } from "./prompt.ts";
import { Refusal } from "./refusals.ts";
import { AnswerScan } from "./usage.ts";

/** SGLang's default. */
const BOOTSTRAP_PORT = 8_998;
const BOOTSTRAP_MS = 5_000;
const MAX_ROOM = 2 ** 48 - 1;
/** Members that ask for more than the one token that an engine for prefill computes. */
const more = ["stream_options", "min_tokens", "n", "best_of"];

export type PairOutcome = Outcome & {
  /** The engine that failed, if it is not the one that answers. */
  readonly by?: Engine;
  /** Tokens that the engine which computed the prompt had cached. */
  readonly cachedTokens?: number | undefined;
};
/** The requests that the two get; `second` may need the first one's answer. */
type Plan = {
  readonly first: Body;
  readonly firstHeaders: Readonly<Record<string, string>>;
  readonly second: (answer: Answer | undefined) => Body;
  /** True if the second one starts only when the first one is done. */
  readonly isSequential: boolean;
};

/** `body`: the request's, parsed. */
export async function attemptPair(options: AttemptOptions & { readonly prefill: Placed; readonly body: Body }): Promise<PairOutcome> {
  const { prefill, body, sent, limits, ending } = options;
  const { request } = sent;
  const { engine } = prefill;
  /** Ends with the request, or earlier: if one of the two fails, the other is cancelled. */
  const either = new Ending();
  const follow = () => either.end(ending.reason);
  ending.on(follow);
  let plan: Plan;
  try {
    plan = await planOf(engine, body);
  } catch (error) {
    return failedBy(engine, (error as Error).message);
  }
  const given = request.headers["x-request-id"];
  const id = given ?? randomUUID();
  const lines = given === undefined ? `${sent.lines}x-request-id: ${id}\r\n` : sent.lines;
  const computing = compute(options, plan, id, either);
  const decode = (answer: Answer | undefined) => {
    const bytes = Buffer.from(JSON.stringify(plan.second(answer)));
    const own = new HeldBody(bytes, undefined, 0, () => sent.body.release());
    return attempt({ ...options, sent: { ...sent, lines, body: own }, ending: either });
  };
  if (plan.isSequential) {
    const computed = await computing;
    if (ending.isOver) return ending.reason === undefined ? { end: "gone" } : { end: "failed", refusal: ending.reason };
    if (computed instanceof Refusal) return { end: "failed", refusal: computed, by: engine };
    if (computed.status !== 200) return passedOn(options, computed, engine);
    return { ...(await decode(computed)), cachedTokens: cachedOf(computed) };
  }
  const answering = decode(undefined);
  // If the prefill fails, the decode request is cancelled: it would wait for a KV cache that no engine computes.
  const broken = computing.then((computed) => {
    if (!(computed instanceof Refusal) && computed.status === 200) return undefined;
    if (!request.hasBegun) either.end();
    return computed;
  });
  const outcome = await answering;
  if (outcome.end === "gone" && !ending.isOver) {
    const computed = await broken;
    if (computed instanceof Refusal) return { end: "failed", refusal: computed, by: engine };
    if (computed !== undefined) return passedOn(options, computed, engine);
  }
  if (outcome.end !== "answered") {
    either.end();
    return outcome;
  }
  const computed = await computing;
  return { ...outcome, cachedTokens: computed instanceof Refusal ? undefined : cachedOf(computed) };

  async function compute({ prefill: placed }: { prefill: Placed }, { first, firstHeaders }: Plan, requestID: string, until: Ending): Promise<Answer | Refusal> {
    const key = engine.record.api_key;
    const authorization = key === undefined ? request.headers["authorization"] : `Bearer ${key}`;
    const headers = {
      "content-type": "application/json",
      "x-request-id": requestID,
      ...(authorization === undefined ? {} : { authorization }),
      ...(sent.deadline === undefined ? {} : { [DEADLINE_HEADER]: leftOf(sent.deadline) }),
      ...firstHeaders,
    };
    const stop = new AbortController();
    until.on(() => stop.abort());
    try {
      const answer = await call({
        agent: engine.agent,
        base: engine.url,
        path: request.path,
        body: JSON.stringify(first),
        headers,
        timeoutMs: limits.firstByteMs,
        signal: stop.signal,
      });
      if (answer.status < 500) engine.succeeded();
      else engine.failed(`the engine answered ${answer.status}`, false);
      if (answer.status === 200) placed.answered();
      return answer.status < 500 ? answer : new Refusal("engine_failed", `the engine ${engine.name}, which computes the prompt, answered ${answer.status}`);
    } catch (error) {
      const { code = "", message } = error as NodeJS.ErrnoException;
      if (!until.isOver) engine.failed(message, code === "ECONNREFUSED");
      return new Refusal("engine_failed", `the engine ${engine.name}, which computes the prompt, gave no answer: ${message}`);
    } finally {
      placed.end();
    }
  }
}

async function planOf(engine: Engine, body: Body): Promise<Plan> {
  const { hostname } = new URL(engine.url);
  const { connector = "nixl", bootstrap_port: port = BOOTSTRAP_PORT } = engine.record;
  const short: Record<string, unknown> = { ...body, stream: false, max_tokens: 1, ...("max_completion_tokens" in body ? { max_completion_tokens: 1 } : {}) };
  for (const name of more) delete short[name];
  if (connector === "sglang") {
    // SGLang sends the same request to both engines, which find each other by the number of the bootstrap room.
    const meeting = { bootstrap_host: hostname, bootstrap_port: port, bootstrap_room: randomInt(MAX_ROOM) };
    return {
      first: { ...body, stream: false, stream_options: undefined, ...meeting },
      firstHeaders: {},
      second: () => ({ ...body, ...meeting }),
      isSequential: false,
    };
  }
  if (connector === "mooncake") {
    const address = `http://${hostname}:${port}`;
    const [rank, engineID] = await bootstrapped(engine, address);
    const transfer_id = `xfer-${randomUUID()}`;
    return {
      first: { ...short, kv_transfer_params: { do_remote_decode: true, do_remote_prefill: false, transfer_id } },
      firstHeaders: { "x-data-parallel-rank": rank },
      second: () => ({
        ...body,
        kv_transfer_params: { do_remote_decode: false, do_remote_prefill: true, remote_bootstrap_addr: address, remote_engine_id: engineID, transfer_id },
      }),
      isSequential: false,
    };
  }
  const unknown = { remote_engine_id: null, remote_block_ids: null, remote_host: null, remote_port: null };
  return {
    first: { ...short, kv_transfer_params: { do_remote_decode: true, do_remote_prefill: false, ...unknown } },
    firstHeaders: {},
    second: (answer) => ({ ...body, kv_transfer_params: paramsOf(answer) }),
    isSequential: true,
  };
}

/** The ranks of a prefill engine, as its bootstrap server knows them; any of them computes the prompt. @throws Error */
async function bootstrapped(engine: Engine, address: string): Promise<[rank: string, engineID: string]> {
  const { status, text } = await call({ agent: engine.agent, base: address, path: "/query", timeoutMs: BOOTSTRAP_MS });
  const ranks = status === 200 ? Object.entries(JSON.parse(text) as Record<string, { engine_id?: unknown }>) : [];
  const [rank, entry] = ranks[randomInt(Math.max(1, ranks.length))] ?? [];
  if (rank === undefined || typeof entry?.engine_id !== "string") throw new Error(`${address}/query answered ${status} without an engine`);
  return [rank, entry.engine_id];
}

/** Returns where the prefill engine keeps the KV cache; with null the decode engine computes the prompt itself. */
function paramsOf(answer: Answer | undefined): unknown {
  try {
    return (JSON.parse(answer?.text ?? "null") as { kv_transfer_params?: unknown } | null)?.kv_transfer_params ?? null;
  } catch {
    return null;
  }
}

function cachedOf({ text }: Answer): number | undefined {
  const scan = new AnswerScan();
  scan.take(Buffer.from(text));
  return scan.usage().cachedTokens;
}

/** The prompt was refused before anything was answered: the client gets the engine's own words. */
function passedOn({ sent, onFirstByte }: AttemptOptions, { status, text }: Answer, engine: Engine): PairOutcome {
  onFirstByte();
  send(sent.request, status, text, "application/json", `x-svc-instance: ${engine.name}\r\n`);
  return { end: "answered", status, scan: new AnswerScan() };
}

function failedBy(engine: Engine, why: string): PairOutcome {
  engine.failed(why, false);
  return { end: "failed", refusal: new Refusal("engine_failed", `the engine ${engine.name}, which computes the prompt: ${why}`), by: engine };
}
