// The endpoint picker, asked by a client that is made from Envoy's published protos, as a gateway asks it. envoy.e2e.test.ts has Envoy itself.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { type ClientDuplexStream, credentials, loadPackageDefinition } from "@grpc/grpc-js";
import { load } from "@grpc/proto-loader";
import { freePorts } from "@svc/harness/ports.ts";
import { chat, heard, metric, openIndexer, openRouter, post, startEngine, until } from "./stack.ts";

const DESTINATION = "x-gateway-destination-endpoint";
const LONG = "The blocks of this prompt are computed once and found again by every later turn. ".repeat(20);
const deps = join(dirname(createRequire(import.meta.url).resolve("@grpc/grpc-js-xds/package.json")), "deps");
const published = loadPackageDefinition(
  await load("envoy/service/ext_proc/v3/external_processor.proto", {
    includeDirs: ["envoy-api", "xds", "googleapis", "protoc-gen-validate"].map((folder) => join(deps, folder)),
    keepCase: true,
    oneofs: true,
    bytes: Buffer,
    enums: String,
  }),
) as unknown as {
  envoy: { service: { ext_proc: { v3: { ExternalProcessor: new (...given: unknown[]) => { Process(): ClientDuplexStream<object, Said>; close(): void } } } } };
};

type Header = { header: { key: string; raw_value: Buffer } };
type Common = {
  header_mutation?: { set_headers: Header[] };
  clear_route_cache: boolean;
};
type Said = {
  response: "request_headers" | "request_body" | "request_trailers" | "response_headers" | "response_body" | "response_trailers" | "immediate_response";
  request_headers?: { response: Common };
  request_body?: { response: Common };
  response_headers?: { response: Common };
  response_body?: { response: Common };
  immediate_response?: { status: { code: string }; body: Buffer; headers: { set_headers: Header[] } };
  dynamic_metadata?: { fields: Record<string, { structValue: { fields: Record<string, { stringValue: string }> } }> };
};

/** One request as Envoy sends it, with streamed bodies in both directions. */
class Gateway {
  readonly said: Said[] = [];
  readonly #stream: ClientDuplexStream<object, Said>;
  over = false;

  constructor(port: number) {
    const client = new published.envoy.service.ext_proc.v3.ExternalProcessor(`127.0.0.1:${port}`, credentials.createInsecure());
    this.#stream = client.Process();
    this.#stream.on("data", (message: Said) => this.said.push(message));
    this.#stream.on("error", () => {});
    this.#stream.on("close", () => {
      this.over = true;
      client.close();
    });
  }

  headers(path: string, { subset, isLast = false, more = {} }: { subset?: readonly string[]; isLast?: boolean; more?: Record<string, string> } = {}): void {
    const headers = Object.entries({ ":method": "POST", ":path": path, "content-type": "application/json", ...more });
    const list = { listValue: { values: (subset ?? []).map((one) => ({ stringValue: one })) } };
    this.#stream.write({
      request_headers: { headers: { headers: headers.map(([key, value]) => ({ key, raw_value: Buffer.from(value) })) }, end_of_stream: isLast },
      ...(subset === undefined
        ? {}
        : { metadata_context: { filter_metadata: { "envoy.lb.subset_hint": { fields: { "x-gateway-destination-endpoint-subset": list } } } } }),
    });
  }

  body(text: string, piece = 1_000): void {
    const bytes = Buffer.from(text);
    for (let at = 0; at < bytes.length || at === 0; at += piece)
      this.#stream.write({ request_body: { body: bytes.subarray(at, at + piece), end_of_stream: at + piece >= bytes.length } });
  }

  answer(status: number, text: string): void {
    this.#stream.write({ response_headers: { headers: { headers: [{ key: ":status", raw_value: Buffer.from(String(status)) }] } } });
    this.#stream.write({ response_body: { body: Buffer.from(text), end_of_stream: true } });
  }

  end(): void {
    this.#stream.end();
  }

  cancel(): void {
    this.#stream.cancel();
  }

  async saying(kind: Said["response"]): Promise<Said> {
    const found = await until(
      `the picker says ${kind}`,
      () => this.said.find(({ response }) => response === kind || response === "immediate_response"),
      (one) => one !== undefined,
    );
    return found as Said;
  }

  async destination(): Promise<string> {
    const { request_headers, dynamic_metadata, immediate_response } = await this.saying("request_headers");
    assert.equal(immediate_response, undefined, immediate_response?.body.toString());
    const set = request_headers?.response.header_mutation?.set_headers.find(({ header }) => header.key === DESTINATION);
    const named = set?.header.raw_value.toString() ?? "";
    assert.equal(dynamic_metadata?.fields["envoy.lb"]?.structValue.fields[DESTINATION]?.stringValue, named, "the header and the metadata name the same");
    return named;
  }
}

const hostOf = ({ url }: { url: string }) => new URL(url).host;

void test("a gateway gets the engine that has the prompt's beginning, and the expected cached tokens are compared with the engine's usage", async () => {
  await using indexer = await openIndexer();
  await using a = await startEngine("a", ["--indexer", indexer.url]);
  await using b = await startEngine("b", ["--indexer", indexer.url]);
  await heard(indexer.url, ["a", "b"]);
  const [port = 0] = await freePorts(1);
  await using router = await openRouter([a, b], [`--indexer=${indexer.url}`, `--picker=127.0.0.1:${port}`, "--router.speculative_seconds=0"]);
  await post(b.url, "/v1/chat/completions", chat(LONG));
  await until(
    "the indexer has the blocks",
    async () => (await post(router.url, "/v1/chat/completions", chat(LONG), { "x-svc-explain": "1" })).json.engine,
    (engine) => engine === "b",
  );
  const request = JSON.stringify(chat(LONG));
  const gateway = new Gateway(port);
  gateway.headers("/v1/chat/completions?x=1");
  gateway.body(request, 300);
  assert.equal(await gateway.destination(), `${hostOf(b)},${hostOf(a)}`, "the best engine first, then the one to fall back to");
  assert.equal(gateway.said[0]?.request_headers?.response.clear_route_cache, true);
  // The gateway sends the request there itself.
  const answered = await post(b.url, "/v1/chat/completions", request);
  gateway.answer(200, answered.text);
  const head = await gateway.saying("response_headers");
  const set = head.response_headers?.response.header_mutation?.set_headers.map(({ header }) => `${header.key}: ${header.raw_value}`);
  assert.equal(set?.[0], "x-svc-instance: b");
  assert.equal(set?.[1], `x-svc-expected-cached-tokens: ${answered.json.usage.prompt_tokens_details.cached_tokens}`);
  await gateway.saying("response_body");
  gateway.end();
  await until(
    "it is counted",
    () => metric(router.url, 'svc_router_prediction_error_tokens_count{direction="equal"}'),
    (count) => count === 1,
  );
  assert.equal(await metric(router.url, 'svc_router_engine_in_flight{engine="b"}'), 0);
});

void test("only endpoints that the gateway allows are named, and without one that is known the answer is 503", async () => {
  await using a = await startEngine("a");
  await using b = await startEngine("b");
  const [port = 0] = await freePorts(1);
  await using router = await openRouter([a, b], [`--picker=127.0.0.1:${port}`]);
  for (let turn = 0; turn < 5; turn++) {
    const gateway = new Gateway(port);
    gateway.headers("/v1/chat/completions", { subset: [hostOf(a), "10.0.0.9:8000"] });
    gateway.body(JSON.stringify(chat(`turn ${turn}`)));
    assert.equal(await gateway.destination(), hostOf(a));
    gateway.end();
  }
  const stranger = new Gateway(port);
  stranger.headers("/v1/chat/completions", { subset: ["10.0.0.9:8000"] });
  stranger.body(JSON.stringify(chat("nobody")));
  const { immediate_response: refused } = await stranger.saying("immediate_response");
  assert.equal(refused?.status.code, "ServiceUnavailable");
  assert.match(refused?.body.toString() ?? "", /"code":"no_engine"/);
  assert.equal(await metric(router.url, 'svc_router_refused_total{code="no_engine"}'), 1);
});

void test("a gateway's requests count as load until they are over, and one that is shed gets 429 with Retry-After", async () => {
  await using a = await startEngine("a");
  const [port = 0] = await freePorts(1);
  await using router = await openRouter([a], [`--picker=127.0.0.1:${port}`, "--router.max_in_flight=2", "--router.queue=0"]);
  const open = async () => {
    const gateway = new Gateway(port);
    gateway.headers("/v1/chat/completions");
    gateway.body(JSON.stringify(chat("hello")));
    await gateway.saying("request_headers");
    return gateway;
  };
  const [one, other] = [await open(), await open()];
  assert.equal(await metric(router.url, 'svc_router_engine_in_flight{engine="a"}'), 2);
  const { immediate_response: shed } = await (await open()).saying("immediate_response");
  assert.equal(shed?.status.code, "TooManyRequests");
  assert.equal(shed?.headers.set_headers.find(({ header }) => header.key === "retry-after")?.header.raw_value.toString(), "1");
  one.cancel();
  await until(
    "the one that was given up counts no more",
    () => metric(router.url, 'svc_router_engine_in_flight{engine="a"}'),
    (count) => count === 1,
  );
  assert.equal((await (await open()).destination()).length > 0, true);
  other.end();
});

void test("nonsense from a gateway gets an error with a code, and the next request is answered", async () => {
  await using a = await startEngine("a");
  const [port = 0] = await freePorts(1);
  await using router = await openRouter([a], [`--picker=127.0.0.1:${port}`, "--router.max_body_bytes=2000"]);
  const cases: [string, string, RegExp][] = [
    ["{", "BadRequest", /invalid_json/],
    [JSON.stringify({ messages: [] }), "BadRequest", /invalid_request/],
    [JSON.stringify(chat("x".repeat(3_000))), "PayloadTooLarge", /body_too_large/],
  ];
  for (const [text, status, code] of cases) {
    const gateway = new Gateway(port);
    gateway.headers("/v1/chat/completions");
    gateway.body(text);
    const { immediate_response: refused } = await gateway.saying("immediate_response");
    assert.equal(refused?.status.code, status);
    assert.match(refused?.body.toString() ?? "", code);
  }
  const left = new Gateway(port);
  left.headers("/v1/chat/completions");
  left.cancel();
  const get = new Gateway(port);
  get.headers("/v1/models", { isLast: true });
  assert.equal(await get.destination(), hostOf(a));
  assert.equal(get.said.filter(({ response }) => response === "request_body").length, 0);
  assert.equal(await metric(router.url, "svc_router_held_bytes"), 0);
});
