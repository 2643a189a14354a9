// The scan of request bodies against JSON.parse: it finds the same members, and equal conversations under equal keys.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { BodyScan } from "../src/body-scan.ts";
import { givenTokens, readPrompt } from "../src/prompt.ts";
import { Refusal } from "../src/refusals.ts";

const PATH = "/v1/chat/completions";
const scanOf = (text: string) => BodyScan.of(Buffer.from(text), "messages");
const name = fc.stringMatching(/^[a-z_]{1,8}$/);
const content = fc.oneof(fc.string({ unit: "binary", maxLength: 60 }), fc.constantFrom('\\"', "\\", '"', "\\\\", "}{][,:", "é \u2028 😀", "x".repeat(100)));
const message = fc.record({ role: fc.constantFrom("user", "assistant"), content });
const spaced = fc.constantFrom(undefined, 1, "\t", "\r\n ".trimStart());

void test("the scan of a body finds what JSON.parse finds, or leaves the body to it", () => {
  let found = 0;
  fc.assert(
    fc.property(fc.dictionary(name, fc.jsonValue(), { maxKeys: 6 }), fc.array(message, { maxLength: 5 }), spaced, (members, messages, space) => {
      const body: Record<string, unknown> = { ...members, messages };
      const text = JSON.stringify(body, null, space);
      const scan = scanOf(text);
      if (scan === undefined) return;
      found++;
      const read = JSON.parse(text) as Record<string, unknown>;
      for (const member of Object.keys(read)) assert.deepEqual(scan.value(member), read[member]);
      assert.equal(scan.value("missing"), undefined);
    }),
    { numRuns: 2_000 },
  );
  assert.ok(found > 1_500, `${found} of 2000 bodies could be scanned`);
});

void test("the key of a conversation is that of its messages and tools, not of its sampling, and its beginnings have their own keys", () => {
  fc.assert(
    fc.property(fc.array(message, { minLength: 1, maxLength: 5 }), fc.array(fc.jsonValue(), { maxLength: 2 }), spaced, (messages, tools, space) => {
      const write = (list: readonly unknown[], more: object = {}) => JSON.stringify({ model: "m", messages: list, tools, ...more }, null, space);
      const key = scanOf(write(messages))?.key(PATH);
      assert.ok(key !== undefined);
      assert.equal(scanOf(write(messages, { temperature: 0.5, stream: true, user: "me" }))?.key(PATH), key);
      assert.notEqual(scanOf(write([...messages, { role: "user", content: "" }]))?.key(PATH), key);
      assert.notEqual(scanOf(write(messages, { add_generation_prompt: false }))?.key(PATH), key);
      assert.notEqual(scanOf(write(messages))?.key("/v1/messages"), key);
      const shorter = messages.map((_, at) => scanOf(write(messages.slice(0, at + 1)))?.key(PATH)).reverse();
      assert.deepEqual(scanOf(write(messages))?.shorterKeys(PATH), shorter.slice(1));
    }),
    { numRuns: 500 },
  );
  assert.equal(scanOf('{"model":"m","messages":[]}')?.key(PATH), undefined);
  assert.equal(scanOf('{"model":"m"}')?.key(PATH), undefined);
});

void test("broken bodies are left to JSON.parse, unless what is broken stands in bytes that must equal others", () => {
  const good = '{"model":"m","stream":true,"messages":[{"role":"user","content":"a"}],"tools":[1]}';
  assert.ok(scanOf(good) !== undefined);
  for (const bad of [
    ...["", "{", "[]", "null", "{}", '{"model":"m"', '{"model":"m",}', '{"model":"m"} x', '{"model":"m" "n":1}', '{"model"}', '{"a":"x}', '{"a":}'],
    ...[
      '{"stream":tru}',
      '{"stop":[1,]}',
      '{"temperature":01}',
      '{"user":"\n"}',
      '{"a":1,"a":2}',
      '{"model":"m","messages":[{"role":"user","content":"a"}}}',
      '{"\\u0061":1}',
      `{"a":${"[".repeat(600)}${"]".repeat(600)}}`,
    ],
  ])
    if (bad !== "{}") assert.equal(scanOf(bad), undefined, bad);
  const key = scanOf(good)?.key(PATH);
  fc.assert(
    fc.property(fc.nat(good.length - 1), fc.integer({ min: 32, max: 126 }), (at, code) => {
      const changed = good.slice(0, at) + String.fromCharCode(code) + good.slice(at + 1);
      const scan = scanOf(changed);
      let isValid = true;
      try {
        JSON.parse(changed);
      } catch {
        isValid = false;
      }
      if (!isValid && scan !== undefined) assert.notEqual(scan.key(PATH), key, changed);
    }),
    { numRuns: 10_000 },
  );
});

void test("token ids are read as JSON.parse reads them, and only where the rest of the body is valid", () => {
  const read = (text: string) => givenTokens(readPrompt("completion", Buffer.from(text), undefined));
  const body = (prompt: string, more = "") => `{"model":"m","prompt":${prompt}${more}}`;
  fc.assert(
    fc.property(fc.array(fc.oneof(fc.nat(100), fc.integer({ min: 0, max: 0xffffffff })), { minLength: 1, maxLength: 300 }), spaced, (ids, space) => {
      assert.deepEqual([...(BodyScan.of(Buffer.from(body(JSON.stringify(ids, null, space))), "prompt")?.tokenIDs() ?? [])], ids);
    }),
  );
  assert.deepEqual([...(read(body(`[${"7,".repeat(40_000)}7]`)) ?? [])].length, 40_001);
  for (const none of ["[]", "[-1]", "[1.5]", "[4294967296]", '["1"]', '"1"', "[1,null]", "[1e2,-0.5]", "[[]]"]) assert.equal(read(body(none)), undefined, none);
  assert.deepEqual([...(read(body("[[1,2],[3]]")) ?? [])], [1, 2]);
  assert.deepEqual([...(read(body("[1e2]")) ?? [])], [100]);
  for (const broken of [body("[01]"), body("[1,]"), body("[1 2]"), body("[1]", ',"x":tru'), body("[1]", ","), body("[1")])
    assert.throws(
      () => read(broken),
      (error) => error instanceof Refusal && error.code === "invalid_json",
      broken,
    );
});
