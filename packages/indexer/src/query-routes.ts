// The routes that ask: by tokens, by hashes, many at once, and why.
import type { QueryAnswer } from "@svc/contract/indexer.ts";
import { isMsgpack, JSON_TYPE, parseJson, parseMsgpack, RAW_TYPE, type SplitProblem, splitRefusal, takesMsgpack } from "./bodies.ts";
import { explain, freshnessOf } from "./explain.ts";
import type { Answer, Handler, Request, Routes } from "./http.ts";
import type { NativeIndex, SplitBody } from "./native.ts";
import { LISTS, type Lists, readQuery, readRaw } from "./query-input.ts";
import { Refusal } from "./refusal.ts";
import type { Registry } from "./registry.ts";
import { respond } from "./respond.ts";
import { Slots } from "./slots.ts";
import type { Turns } from "./turns.ts";
import type { Views } from "./views.ts";

const MAX_BATCHED_QUERIES = 1024;
/** Of all results of a batch. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
/** Longer bodies take milliseconds to read: other requests come between. */
const LONG_BYTES = 256 * 1024;
/** Of them one is read at a time: its numbers take several times its size. */
const longOnes = new Slots(1);
const never = new AbortController().signal;

export function queryRoutes(index: NativeIndex, registry: Registry, views: Views, turns: Turns): Routes {
  /** Whether the body that was scanned last asks for freshness. */
  const asked = new Uint8Array(1);

  /** A query's answer as JSON text. */
  function answerTo(body: Buffer, msgpack: boolean, lists: Lists, wantsFreshness: boolean): Buffer | string {
    // The usual case never becomes a JavaScript value.
    const fast = msgpack ? undefined : index.answerJson(body, LISTS[lists], asked);
    if (fast !== undefined) return wantsFreshness || asked[0] === 1 ? withFreshness(index, registry, fast) : fast;
    const { query, list, freshness } = readQuery(index.splitQuery(body, msgpack), msgpack, lists);
    const answer = index.answer(query, list);
    return wantsFreshness || freshness ? withFreshness(index, registry, answer) : answer;
  }

  const ask =
    (lists: Lists): Handler =>
    (request) => {
      const wantsFreshness = request.search !== "" && /(^|&)freshness=(1|true)(&|$)/.test(request.search);
      if (request.type !== RAW_TYPE && request.body.length > LONG_BYTES) return askLong(request, lists, wantsFreshness);
      let answer: Buffer | string;
      if (request.type === RAW_TYPE) {
        const { query, list } = readRaw(request.body, request.search, lists === "hashes");
        answer = index.answer(query, list);
        if (wantsFreshness) answer = withFreshness(index, registry, answer);
      } else answer = answerTo(request.body, isMsgpack(request.type), lists, wantsFreshness);
      return inForm(request, answer);
    };

  /** A long body is read on another thread, and answered when its turn comes. */
  async function askLong(request: Request, lists: Lists, wantsFreshness: boolean): Promise<Answer> {
    const msgpack = isMsgpack(request.type);
    const body = request.bodyStays ? request.body : Buffer.from(request.body);
    const split = await longOnes.within(never, () => index.splitLater(body, msgpack));
    return turns.run(request.peer, () => {
      const { query, list, freshness } = readQuery(split as SplitBody, msgpack, lists);
      const answer = index.answer(query, list);
      return inForm(request, wantsFreshness || freshness ? withFreshness(index, registry, answer) : answer);
    });
  }

  const queryBatch: Handler = async (request): Promise<Answer> => {
    const msgpack = isMsgpack(request.type);
    // Other requests come between its queries.
    const body = request.bodyStays ? request.body : Buffer.from(request.body);
    const { rest, problem, spans, count } = index.splitBatch(body, msgpack);
    if (problem !== undefined) throw splitRefusal(JSON.parse(problem) as SplitProblem);
    (msgpack ? parseMsgpack : parseJson)(rest);
    if (spans === undefined) throw new Refusal("missing", 'queries: expected {"queries": [query, ...]}', { field: "queries" });
    if (count > MAX_BATCHED_QUERIES) throw new Refusal("out_of_range", `queries: the maximum is ${MAX_BATCHED_QUERIES}, got ${count}`, { field: "queries" });
    const results: string[] = [];
    let size = 0;
    for (let at = 0; at < spans.length; at += 2) {
      const one = (): string => {
        try {
          if (size > MAX_ANSWER_BYTES)
            throw new Refusal("too_large", `the results before this one have more than ${MAX_ANSWER_BYTES} bytes; ask for fewer at once`);
          return answerTo(body.subarray(spans[at], spans[at + 1]), msgpack, "either", false).toString();
        } catch (error) {
          if (error instanceof Refusal) return JSON.stringify(error.body());
          throw error;
        }
      };
      const result = turns.run(request.peer, one);
      results.push(typeof result === "string" ? result : await result);
      size += results.at(-1)?.length ?? 0;
    }
    const text = `{"results":[${results.join(",")}]}`;
    return inForm(request, text);
  };

  return {
    "/query": { POST: ask("tokens") },
    "/query_by_hash": { POST: ask("hashes") },
    "/query_batch": { POST: queryBatch },
    "/explain": {
      POST: (request) => {
        const msgpack = isMsgpack(request.type);
        return respond(request, explain(index, registry, views, readQuery(index.splitQuery(request.body, msgpack), msgpack, "either")));
      },
    },
  };
}

/** An answer in JSON in the form that the client takes. */
function inForm(request: Request, answer: Buffer | string): Answer {
  return takesMsgpack(request) ? respond(request, JSON.parse(answer.toString())) : { body: answer, type: JSON_TYPE };
}

function withFreshness(index: NativeIndex, registry: Registry, text: Buffer): string {
  const answer = JSON.parse(text.toString()) as QueryAnswer;
  for (const [tenant, instances] of Object.entries(answer)) {
    const freshness = freshnessOf(index, registry, tenant);
    for (const [instance, match] of Object.entries(instances)) match.freshness = freshness.get(instance) ?? {};
  }
  return JSON.stringify(answer);
}
