// A tokenizer in the router itself: it is used where an engine has confirmed it, and refused by name where one differs.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { samples } from "../src/token-samples.ts";
import { chat, metric, openIndexer, openRouter, post, ROUTER, startEngine, until } from "./stack.ts";

/** The tokenizer of the example engine: a token is a character, and its id the code point. */
function writeTokenizer(folder: string, template: string): void {
  mkdirSync(folder, { recursive: true });
  const letters = new Set(Array.from({ length: 0x500 }, (_, code) => String.fromCodePoint(code)));
  for (const { prompt } of samples("demo")) for (const letter of JSON.stringify(prompt.body)) letters.add(letter);
  const vocab = Object.fromEntries([...letters].map((letter) => [letter, letter.codePointAt(0) ?? 0]));
  const model = { type: "BPE", unk_token: null, fuse_unk: false, byte_fallback: false, vocab, merges: [] };
  const tokenizer = { version: "1.0", added_tokens: [], normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null, model };
  writeFileSync(join(folder, "tokenizer.json"), JSON.stringify(tokenizer));
  writeFileSync(join(folder, "tokenizer_config.json"), JSON.stringify({ chat_template: template, eos_token: { content: "</s>" } }));
}
const TEMPLATE = "{% for one in messages %}<{{ one.role }}>{{ one.content or '' }}\n{% endfor %}<assistant>";

void test("chats and completions are tokenized without a call to the engine, and expected right", async () => {
  const home = makeHome();
  try {
    writeTokenizer(join(home, "demo"), TEMPLATE);
    await using indexer = await openIndexer();
    await using a = await startEngine("a", ["--indexer", indexer.url]);
    await using router = await openRouter([a], [`--indexer=${indexer.url}`, `--tokenizer=demo=${join(home, "demo")}`]);
    const { tokenized } = await a.seen();
    const content = "a prompt of more than two blocks of sixteen tokens, so that some of it is found";
    for (const [path, body] of [
      ["/v1/chat/completions", chat(content)],
      ["/v1/completions", { model: "demo", prompt: `${content}, as a text` }],
    ] as const) {
      const first = await post(router.url, path, body);
      assert.equal(first.status, 200, first.text);
      const again = await until(
        "the indexer knows it",
        () => post(router.url, path, body),
        ({ headers }) => Number(headers.get("x-svc-expected-cached-tokens")) >= 64,
      );
      assert.equal(Number(again.headers.get("x-svc-expected-cached-tokens")), again.json.usage.prompt_tokens_details.cached_tokens);
      const { tokens } = (await post(router.url, path, body, { "x-svc-explain": "1" })).json;
      assert.equal(tokens.count, again.json.usage.prompt_tokens);
    }
    assert.equal((await a.seen()).tokenized, tokenized, "the engine was asked at the start alone");
    assert.equal(await metric(router.url, 'svc_router_placements_total{tokens="local"}'), 2);
    // Parts of a message are joined by engines in ways of their own.
    const parts = await post(router.url, "/v1/chat/completions", { model: "demo", messages: [{ role: "user", content: [{ type: "text", text: content }] }] });
    assert.equal(parts.status, 200);
    assert.equal((await a.seen()).tokenized, tokenized + 1);
  } finally {
    removeHome(home);
  }
});

void test("a tokenizer that makes other tokens than an engine ends the start, with the model, the engine and the text", async () => {
  const home = makeHome();
  try {
    writeTokenizer(join(home, "demo"), TEMPLATE.replace("<assistant>", "<model>"));
    await using a = await startEngine("a");
    const start = (flags: readonly string[]) =>
      new Promise<{ code: number | null; said: string }>((resolve) => {
        const child = spawn(process.execPath, [ROUTER, "--listen=127.0.0.1:0", `--engine=a=${a.url}`, ...flags], { stdio: ["ignore", "ignore", "pipe"] });
        let said = "";
        child.stderr.on("data", (chunk: Buffer) => void (said += chunk.toString()));
        child.once("close", (code) => resolve({ code, said }));
      });
    const wrong: [string, RegExp][] = [
      [`demo=${join(home, "demo")}`, /does not agree with the engine a for demo: .*Hello, world!.* has \d+ tokens here and \d+ there/],
      ["demo", /--tokenizer: expected MODEL=FOLDER, got "demo"/],
      ["demo=/nowhere", /tokenizer_config.json cannot be read/],
    ];
    for (const [given, says] of wrong) {
      const { code, said } = await start([`--tokenizer=${given}`]);
      assert.notEqual(code, 0, given);
      assert.match(said, says);
    }
  } finally {
    removeHome(home);
  }
});

void test("calls that the engine renders in another way than the template are left to it, and other chats are not", async () => {
  const home = makeHome();
  try {
    writeTokenizer(
      join(home, "demo"),
      TEMPLATE.replace("\n{% endfor", "{% for call in one.tool_calls or [] %}{{ call | tojson }}{% endfor %}{{ '\\n' }}{% endfor"),
    );
    await using a = await startEngine("a");
    await using router = await openRouter([a], [`--tokenizer=demo=${join(home, "demo")}`]);
    const { tokenized } = await a.seen();
    const call = { id: "1", type: "function", function: { name: "run", arguments: "{}" } };
    const messages = [
      { role: "user", content: "run it" },
      { role: "assistant", content: null, tool_calls: [call] },
      { role: "tool", tool_call_id: "1", content: "done" },
    ];
    assert.equal((await post(router.url, "/v1/chat/completions", chat("without a call"))).status, 200);
    assert.equal((await a.seen()).tokenized, tokenized);
    assert.equal((await post(router.url, "/v1/chat/completions", { model: "demo", messages })).status, 200);
    assert.equal((await a.seen()).tokenized, tokenized + 1);
  } finally {
    removeHome(home);
  }
});

void test("without an engine at the start, a tokenizer is used once an engine has agreed, and never if it differs", async () => {
  const home = makeHome();
  try {
    for (const [name, template] of [
      ["right", TEMPLATE],
      ["wrong", TEMPLATE.replace("<assistant>", "<model>")],
    ] as const) {
      writeTokenizer(join(home, name), template);
      await using a = await startEngine("a");
      await a.kill();
      await using router = await openRouter([a], [`--tokenizer=demo=${join(home, name)}`]);
      await a.start();
      let turn = 0;
      const ask = () => post(router.url, "/v1/chat/completions", chat(`turn ${turn++}`));
      await until("the engine answers", ask, ({ status }) => status === 200);
      if (name === "wrong") {
        await until(
          "the difference is logged",
          () => router.log(),
          (log) => /"model":"demo".*makes other tokens than the engine/.test(log),
        );
        for (let more = 0; more < 3; more++) assert.equal((await ask()).status, 200);
        assert.equal(await metric(router.url, 'svc_router_placements_total{tokens="local"}'), 0);
      } else
        await until(
          "the tokenizer is used",
          async () => {
            await ask();
            return metric(router.url, 'svc_router_placements_total{tokens="local"}');
          },
          (count) => count > 0,
        );
    }
  } finally {
    removeHome(home);
  }
});
