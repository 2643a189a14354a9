// The query routes: by tokens, by hashes, in batches, and with explanations.

import { Semaphore } from "@svc/kit/semaphore.ts";
import { isMsgpack, JSON_TYPE, MSGPACK_TYPE, parseJson, parseMsgpack, RAW_TYPE, type SplitProblem, splitRefusal, takesMsgpack } from "../http/bodies.ts";
import type { Answer, Handler, Request, Routes } from "../http/exchange.ts";
import { Refusal } from "../http/refusal.ts";
import { respond } from "../http/respond.ts";
import type { LoopShare } from "../index/loop-share.ts";
import { type NativeIndex, type SplitBody, UNUSUAL, WANTS_FRESHNESS } from "../index/native.ts";
import type { Views } from "../observe/views.ts";
import type { Registry } from "../state/registry.ts";
import { explain } from "./explain.ts";
import { FreshnessTable } from "./freshness.ts";
import { BatchResults, PlainBatch } from "./query-batch.ts";
import { asksFreshness, LISTS, type Lists, type ReadQuery, readQuery, readRaw } from "./query-input.ts";

const MAX_BATCHED_QUERIES = 1024;
/** Longer bodies take milliseconds to read, so they are read on another thread and other requests come in between. */
const LONG_BYTES = 256 * 1024;
/** Only one long body is read at a time: its numbers take several times its size. */
const longBodies = new Semaphore(1);
const never = new AbortController().signal;

export function queryRoutes(index: NativeIndex, registry: Registry, views: Views, share: LoopShare): Routes {
  const freshness = new FreshnessTable(registry.subscriptions);

  function answerRead(read: ReadQuery, packed: boolean, wantsFreshness: boolean): Buffer {
    return index.answer(read.query, read.list, packed, wantsFreshness || read.freshness ? freshness.now() : null);
  }

  function answerTo(body: Buffer, msgpack: boolean, lists: Lists, packed: boolean, wantsFreshness: boolean): Buffer {
    // A plain query never becomes a JavaScript value.
    const scanned = index.scan(body, msgpack, LISTS[lists]);
    if (scanned !== UNUSUAL) return index.answerScanned(packed, wantsFreshness || scanned === WANTS_FRESHNESS ? freshness.now() : null);
    return answerRead(readQuery(index.splitQuery(body, msgpack), msgpack, lists), packed, wantsFreshness);
  }

  const ask =
    (lists: Lists): Handler =>
    (request) => {
      const wantsFreshness = request.search !== "" && asksFreshness(request.search);
      if (request.type !== RAW_TYPE && request.body.length > LONG_BYTES) return askLong(request, lists, wantsFreshness);
      const packed = takesMsgpack(request);
      if (request.type === RAW_TYPE) return inForm(answerRead(readRaw(request.body, request.search, lists === "hashes"), packed, wantsFreshness), packed);
      return inForm(answerTo(request.body, isMsgpack(request.type), lists, packed, wantsFreshness), packed);
    };

  /** Reads a long body on another thread, and answers when the peer is due. */
  async function askLong(request: Request, lists: Lists, wantsFreshness: boolean): Promise<Answer> {
    const msgpack = isMsgpack(request.type);
    const packed = takesMsgpack(request);
    const body = kept(request);
    const split = await longBodies.within(never, () => index.splitLater(body, msgpack));
    return share.run(request.peer, () => inForm(answerRead(readQuery(split as SplitBody, msgpack, lists), packed, wantsFreshness), packed));
  }

  const queryBatch: Handler = (request) => {
    const packed = takesMsgpack(request);
    const batch = new PlainBatch(index, freshness, isMsgpack(request.type), packed);
    if (!batch.begins(request.body)) return carefulBatch(request, kept(request));
    do {
      const step = batch.step(request.body);
      if (step === "end") return inForm(batch.results.whole(), packed);
      if (step === "unusual") return carefulBatch(request, kept(request));
    } while (share.open);
    return restOfBatch(request, batch);
  };

  /** Answers the rest of a batch; other requests come between its queries. */
  async function restOfBatch(request: Request, batch: PlainBatch): Promise<Answer> {
    const body = kept(request);
    for (;;) {
      const step = await share.run(request.peer, () => batch.step(body));
      if (step === "end") return inForm(batch.results.whole(), takesMsgpack(request));
      if (step === "unusual") return carefulBatch(request, body);
    }
  }

  /** Answers a batch of any form: it finds the queries and their faults first, then reads each alone. */
  async function carefulBatch(request: Request, body: Buffer): Promise<Answer> {
    const msgpack = isMsgpack(request.type);
    const packed = takesMsgpack(request);
    const { rest, problem, spans, count } = index.splitBatch(body, msgpack);
    if (problem !== undefined) throw splitRefusal(JSON.parse(problem) as SplitProblem);
    (msgpack ? parseMsgpack : parseJson)(rest);
    if (spans === undefined) throw new Refusal("missing", 'queries: expected {"queries": [query, ...]}', { field: "queries" });
    if (count > MAX_BATCHED_QUERIES) throw new Refusal("out_of_range", `queries: the maximum is ${MAX_BATCHED_QUERIES}, got ${count}`, { field: "queries" });
    const results = new BatchResults(packed);
    for (let at = 0; at < spans.length; at += 2) {
      const one = (): void => results.add(() => answerTo(body.subarray(spans[at], spans[at + 1]), msgpack, "either", packed, false));
      const later = share.run(request.peer, one);
      if (later !== undefined) await later;
    }
    return inForm(results.whole(), packed);
  }

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

/** Returns a body that stays valid after the handler awaits. */
function kept({ body, bodyStays }: Request): Buffer {
  return bodyStays ? body : Buffer.from(body);
}

function inForm(body: Buffer, packed: boolean): Answer {
  return { body, type: packed ? MSGPACK_TYPE : JSON_TYPE };
}
