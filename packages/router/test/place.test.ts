// Placement's parts alone: costs, ties, the queue, what was sent lately, tokens and loads as engines write them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { joinRepeated } from "@svc/kit/repeated-flags.ts";
import { Ending } from "../src/ending.ts";
import { Engine } from "../src/engine.ts";
import { readLoad } from "../src/engine-load.ts";
import { type Cost, choose, costOf, type Option } from "../src/place.ts";
import { AdmissionQueue } from "../src/queue.ts";
import { RecentPrompts } from "../src/recent-prompts.ts";
import { Refusal } from "../src/refusals.ts";
import { cacheKeys, TokenCache } from "../src/token-cache.ts";
import { readTokens } from "../src/tokens.ts";
import { AnswerScan } from "../src/usage.ts";

const rules = { uncertainShare: 0.5, runningRequestSeconds: 0.01, kvFullSeconds: 1, tieSeconds: 0.002 };
const idle: Option = {
  name: "a",
  promptTokens: 1_000,
  certainTokens: 0,
  uncertainTokens: 0,
  waitingTokens: 0,
  running: 0,
  kvUsage: 0,
  prefillTokensPerSecond: 1_000,
};
const best = (...options: Option[]) =>
  choose(
    options.map((option) => costOf(option, rules)),
    rules,
    undefined,
    Math.random,
  )?.name;

void test("the prefix counts against waiting work in seconds, and uncertain tokens at their share", () => {
  const cached = { ...idle, name: "b", certainTokens: 800 };
  assert.equal(best(idle, cached), "b");
  assert.equal(best(idle, { ...cached, waitingTokens: 700 }), "b");
  assert.equal(best(idle, { ...cached, waitingTokens: 900 }), "a");
  assert.equal(best({ ...idle, certainTokens: 450 }, { ...idle, name: "b", uncertainTokens: 800 }), "a");
  assert.equal(best({ ...idle, certainTokens: 350 }, { ...idle, name: "b", uncertainTokens: 800 }), "b");
  assert.equal(best({ ...idle, kvUsage: 0.97 }, { ...idle, name: "b", running: 50 }), "b");
  // An engine that computes faster wins among equals.
  assert.equal(best(idle, { ...idle, name: "b", prefillTokensPerSecond: 2_000 }), "b");
});

void test("equal engines are chosen evenly, unless the session has been on one of them", () => {
  const costs: Cost[] = ["a", "b", "c"].map((name) => costOf({ ...idle, name, ...(name === "c" ? { waitingTokens: 500 } : {}) }, rules));
  const counts = new Map<string, number>();
  for (let at = 0; at < 100; at++) {
    const name = choose(costs, rules, undefined, () => at / 100)?.name ?? "";
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  assert.deepEqual(
    [...counts],
    [
      ["a", 50],
      ["b", 50],
    ],
  );
  assert.equal(choose(costs, rules, "b", () => 0)?.name, "b");
  assert.equal(choose(costs, rules, "c", () => 0)?.name, "a");
  assert.equal(
    choose([], rules, "c", () => 0),
    undefined,
  );
});

void test("a prompt that was just sent is uncertain until its first answer byte, then certain, and forgotten in time", () => {
  const recent = new RecentPrompts(1_000);
  const tokens = Uint32Array.from({ length: 100 }, (_, at) => at);
  const other = tokens.with(50, 7);
  const sent = recent.add(tokens, "m", 0);
  assert.deepEqual(recent.match(other, "m", 16, 1), { certain: 0, uncertain: 48 });
  sent.computed = true;
  assert.deepEqual(recent.match(other, "m", 16, 1), { certain: 48, uncertain: 0 });
  assert.deepEqual(recent.match(tokens, "another model", 16, 1), { certain: 0, uncertain: 0 });
  assert.deepEqual(recent.match(other, "m", 16, 1_000), { certain: 0, uncertain: 0 });
  recent.remove(sent);
  assert.deepEqual(recent.match(tokens, "m", 16, 1), { certain: 0, uncertain: 0 });
});

void test("what the indexer knew of a prompt when it was sent follows the indexer, and a prompt that it knows as a whole is forgotten", () => {
  const recent = new RecentPrompts(1_000);
  const tokens = Uint32Array.from({ length: 100 }, (_, at) => at);
  recent.add(tokens, "m", 0, 32).computed = true;
  const beginning = tokens.with(40, 7);
  assert.deepEqual(recent.match(beginning, "m", 16, 1, 0), { certain: 0, uncertain: 0 }, "its first two blocks have been evicted since");
  assert.deepEqual(recent.match(tokens, "m", 16, 1, 32), { certain: 96, uncertain: 0 }, "the rest is newer than what the indexer knows");
  assert.deepEqual(recent.match(tokens, "m", 16, 1, 96), { certain: 0, uncertain: 0 });
  assert.deepEqual(recent.match(tokens, "m", 16, 1, 48), { certain: 0, uncertain: 0 }, "the indexer knew all of it, and has heard of an eviction");
});

void test("more urgent requests leave the queue first, and the least urgent one gives way where it is full", async () => {
  let free = 0;
  const queue = new AdmissionQueue<string>({ length: 3, waitMs: 60_000, hasRoom: () => free > 0 });
  const order: string[] = [];
  const ask = (name: string, priority: number) =>
    queue
      .enter(() => (free-- > 0 ? name : undefined), new Ending(), priority)
      .then(
        (got) => void order.push(got),
        (error: Refusal) => void order.push(`${name}: ${error.code}`),
      );
  const all = [ask("first", 0), ask("later", 5), ask("second", 0), ask("urgent", -1), ask("too late", 5)];
  free = 3;
  queue.pump();
  await Promise.all(all);
  assert.deepEqual(order.slice(0, 2).sort(), ["later: queue_full", "too late: queue_full"]);
  assert.deepEqual(order.slice(2), ["urgent", "first", "second"]);
});

void test("an engine that answers and fails is left out for longer each time, and one that is gone is looked for at once", () => {
  const engine = new Engine({
    record: { name: "a", url: "http://127.0.0.1:1" },
    prefillTokensPerSecond: 1,
    maxInFlight: 1,
    circuitFailures: 1,
    speculativeMs: 0,
    onCircuit: () => {},
  });
  const pauseMs = (certain: boolean) => {
    const nowMs = performance.now();
    engine.failed("it answered 503", certain);
    const { circuit } = engine;
    assert.equal(circuit.state, "open");
    engine.recovered();
    return circuit.state === "open" ? Math.floor((circuit.probeAtMs - nowMs) / 1_000) : Number.NaN;
  };
  assert.deepEqual([false, false, false].map(pauseMs), [1, 2, 4]);
  assert.equal(pauseMs(true), 0);
  for (let time = 0; time < 10; time++) pauseMs(false);
  assert.equal(pauseMs(false), 60);
  engine.succeeded();
  assert.equal(pauseMs(false), 1);
});

void test("the token cache finds equal conversations and the beginnings of longer ones, within its bytes", () => {
  const body = { model: "m", temperature: 1, messages: [{ content: "a" }, { content: "b" }] };
  const { chain } = cacheKeys("/v1/chat/completions", body, "messages");
  const longer = cacheKeys("/v1/chat/completions", { ...body, temperature: 0, messages: [...body.messages, { content: "c" }] }, "messages");
  assert.deepEqual(longer.chain.slice(0, 2), chain);
  assert.notDeepEqual(cacheKeys("/v1/chat/completions", { ...body, tools: [] }, "messages").chain, chain);
  const cache = new TokenCache(10_000);
  for (let at = 0; at < 100; at++) {
    cache.set(String(at), new Uint32Array(100));
    cache.get("0");
    assert.ok(cache.bytes <= 10_000);
  }
  assert.ok(cache.get("0") !== undefined && cache.get("99") !== undefined && cache.get("50") === undefined);
});

void test("requests that wait are served in their order, by the first engine that has room for them", async () => {
  let room = 0;
  const queue = new AdmissionQueue<number>({ length: 2, waitMs: 60_000, hasRoom: () => room > 0 });
  const ending = new Ending();
  const order: number[] = [];
  const enter = (name: number) => queue.enter(() => (room > 0 ? room-- && name : undefined), ending).then((got) => order.push(got));
  const waiting = [enter(1), enter(2)];
  await assert.rejects(enter(3), (error) => error instanceof Refusal && error.code === "queue_full");
  room = 1;
  queue.pump();
  await waiting[0];
  assert.deepEqual([order, queue.length], [[1], 1]);
  const leaving = new Ending();
  const third = queue.enter(() => undefined, leaving);
  leaving.end();
  await assert.rejects(third, (error) => error instanceof Refusal && error.code === "client_gone");
  queue.close();
  await assert.rejects(waiting[1] as Promise<number>, (error) => error instanceof Refusal && error.code === "shutting_down");
});

void test("loads are read by vLLM's and SGLang's names, over all ranks of an engine", () => {
  const vllm = [0, 1]
    .map(
      (rank) =>
        `vllm:num_requests_running{engine="${rank}",model_name="m {x}"} 3.0\nvllm:num_requests_waiting{engine="${rank}"} 2.0\nvllm:kv_cache_usage_perc{engine="${rank}"} 0.${rank + 1}\n`,
    )
    .join("");
  assert.deepEqual(readLoad(`# HELP x\n${vllm}`), { running: 6, waiting: 4, kvUsage: 0.2 });
  assert.deepEqual(readLoad("sglang:num_running_reqs 4\nsglang:num_queue_reqs 1\nsglang:token_usage 0.5\n"), { running: 4, waiting: 1, kvUsage: 0.5 });
  assert.equal(readLoad("vllm:num_requests_running NaN\nother 1\n<html>"), undefined);
});

void test("token ids are read as each engine writes them, and nothing else passes for them", () => {
  const texts = ['{"count":2,"tokens":[1,2]}', '{"request_id":"r","token_ids":[1,2]}', '[{"token_ids":[1,2]},{"token_ids":[3]}]', '{"tokens":[[1,2],[3]]}'];
  for (const text of texts) assert.deepEqual([...(readTokens(text) ?? [])], [1, 2], text);
  for (const text of ["", "[]", "null", '{"tokens":[]}', '{"tokens":["a"]}', '{"tokens":[-1]}', '{"tokens":{"0":1}}'])
    assert.equal(readTokens(text), undefined, text);
});

void test("an answer's usage is found however its bytes are cut", () => {
  const openai = `data: {"id":"x"}\n\n${"data: {}\n\n".repeat(2_000)}data: {"usage":{"prompt_tokens":70,"prompt_tokens_details":{"audio_tokens":null,"cached_tokens":64}}}\n\ndata: [DONE]\n\n`;
  const anthropic = `data: {"type":"message_start","message":{"usage":{"cache_read_input_tokens":32}}}\n\n${"data: {}\n\n".repeat(2_000)}`;
  for (const size of [1, 7, 1_000, 100_000]) {
    for (const [text, cached] of [
      [openai, 64],
      [anthropic, 32],
      ["{}", undefined],
    ] as const) {
      const scan = new AnswerScan();
      const bytes = Buffer.from(text);
      for (let at = 0; at < bytes.length; at += size) scan.take(bytes.subarray(at, at + size));
      assert.equal(scan.usage().cachedTokens, cached, `${size}: ${text.slice(0, 30)}`);
    }
  }
});

void test("several --engine flags become one list", () => {
  assert.deepEqual(joinRepeated(["--engine", "a=http://x:1", "--listen=h:1", "--engine=b=http://y:2"], "engine"), [
    "--listen=h:1",
    '--engine=["a=http://x:1","b=http://y:2"]',
  ]);
  assert.deepEqual(joinRepeated(["--engine"], "engine"), ["--engine"]);
});
