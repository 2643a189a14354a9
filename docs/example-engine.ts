// An engine to try the router with: it speaks vLLM's HTTP and KV events, and answers every prompt with the same words.
//
//   node docs/example-engine.ts --name engine-a --port 9001 [--model demo] [--indexer http://localhost:13333]
//
// A token is a character. POST /fault {"mode": "slow" | "hold" | "never" | "garbage" | "half" | "429" | "503" | "no tokens" | "none", "ms": N} makes it misbehave.
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import { IndexClient, openHasher } from "@svc/contract/index-client.ts";
import { SimulatedEngine } from "@svc/indexer/simulate/engine.ts";

const { values } = parseArgs({
  options: {
    name: { type: "string", default: "engine-a" },
    host: { type: "string", default: "127.0.0.1" },
    port: { type: "string", default: "9001" },
    model: { type: "string", default: "demo" },
    lora: { type: "string", multiple: true, default: [] },
    "block-size": { type: "string", default: "16" },
    blocks: { type: "string", default: "10000" },
    indexer: { type: "string", default: process.env["SVC_INDEXER_URL"] ?? "" },
    "prefill-rate": { type: "string", default: "100000" },
    "token-ms": { type: "string", default: "2" },
    /** Without it there are only /tokenize and /v1/tokenize, as in an engine without render paths. */
    render: { type: "boolean", default: false },
    "no-tokenize": { type: "boolean", default: false },
  },
});
const blockSize = Number(values["block-size"]);
const words = ["Blocks", " that", " match", " need", " no", " prefill", ".", " Really", "."];

const cache = new SimulatedEngine({
  blockSize,
  capacityBlocks: Number(values.blocks),
  port: 0,
  replayPort: 0,
  host: "127.0.0.1",
  bufferBatches: 10_000,
  rank: 0,
  hash: await openHasher(),
});
await cache.start();

/** An engine says at which port it publishes, and not at which of its addresses. */
const wildcard = (endpoint: string) => endpoint.replace(/^tcp:\/\/.*:/, "tcp://*:");

type Body = Record<string, unknown>;
type Message = { role?: string; content?: unknown };
let fault = { mode: "none", ms: 0 };
let release: () => void = () => {};
let held = Promise.resolve();
let running = 0;
let waiting = 0;
let blocksInUse = 0;
const seen = { requests: 0, cancelled: 0, tokenized: 0, rendered: 0, headers: {} as unknown, paths: [] as string[] };
const responses = new Set<string>();
let count = 0;

const tokensOf = (text: string) => Array.from(text, (character) => character.codePointAt(0) ?? 0);
const contentOf = ({ content }: Message) => (Array.isArray(content) ? content.map((part: { text?: string }) => part.text ?? "").join("") : String(content ?? ""));
const chatOf = (messages: Message[]) => `${messages.map((one) => `<${one.role}>${contentOf(one)}\n`).join("")}<assistant>`;

function promptOf(path: string, body: Body): number[] {
  if (path === "/v1/completions") return Array.isArray(body["prompt"]) ? (body["prompt"] as number[]) : tokensOf(String(body["prompt"]));
  const list = body["messages"] ?? body["input"];
  return tokensOf(chatOf(Array.isArray(list) ? (list as Message[]) : [{ role: "user", content: list }]));
}

async function readBody(request: IncomingMessage): Promise<Body> {
  const chunks: Buffer[] = [];
  for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString("utf8");
  return text === "" ? {} : (JSON.parse(text) as Body);
}

const send = (response: ServerResponse, status: number, value: unknown) => {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  response.writeHead(status, { "content-type": typeof value === "string" ? "text/plain" : "application/json" }).end(text);
};

function usageOf(path: string, prompt: number, cached: number, output: number): Body {
  if (path === "/v1/messages") return { input_tokens: prompt - cached, cache_read_input_tokens: cached, output_tokens: output };
  if (path === "/v1/responses") return { input_tokens: prompt, input_tokens_details: { cached_tokens: cached }, output_tokens: output };
  return { prompt_tokens: prompt, completion_tokens: output, total_tokens: prompt + output, prompt_tokens_details: { cached_tokens: cached } };
}

/** One event of a stream, as each API frames it. */
function eventOf(path: string, text: string, id: string): string {
  if (path === "/v1/messages") return `event: content_block_delta\ndata: ${JSON.stringify({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text } })}\n\n`;
  if (path === "/v1/responses") return `event: response.output_text.delta\ndata: ${JSON.stringify({ type: "response.output_text.delta", response: { id }, delta: text })}\n\n`;
  if (path === "/v1/completions") return `data: ${JSON.stringify({ id, object: "text_completion", choices: [{ index: 0, text }] })}\n\n`;
  return `data: ${JSON.stringify({ id, object: "chat.completion.chunk", choices: [{ index: 0, delta: { content: text }, finish_reason: null }] })}\n\n`;
}

function answerOf(path: string, text: string, id: string, usage: Body, model: unknown): Body {
  if (path === "/v1/messages") return { id, type: "message", role: "assistant", model, content: [{ type: "text", text }], stop_reason: "end_turn", usage };
  if (path === "/v1/responses") return { id, object: "response", model, status: "completed", output: [{ type: "message", role: "assistant", content: [{ type: "output_text", text }] }], usage };
  const choice = path === "/v1/completions" ? { index: 0, text, finish_reason: "stop" } : { index: 0, message: { role: "assistant", content: text }, finish_reason: "stop" };
  return { id, object: path === "/v1/completions" ? "text_completion" : "chat.completion", model, choices: [choice], usage };
}

async function generate(path: string, body: Body, response: ServerResponse): Promise<void> {
  const previous = body["previous_response_id"];
  if (typeof previous === "string" && !responses.has(previous)) return send(response, 404, { error: { message: `no response ${previous}`, code: "not_found" } });
  const prompt = promptOf(path, body);
  const id = `${path === "/v1/responses" ? "resp" : "cmpl"}_${values.name}_${++count}`;
  responses.add(id);
  const blocks = Math.ceil(prompt.length / blockSize);
  waiting++;
  blocksInUse += blocks;
  const gone = new AbortController();
  response.once("close", () => {
    if (response.writableFinished) return;
    seen.cancelled++;
    gone.abort();
  });
  let isWaiting = true;
  try {
    if (fault.mode === "slow") await delay(fault.ms, undefined, { signal: gone.signal });
    // It waits for the next fault.
    if (fault.mode === "hold") await held;
    if (fault.mode === "never") await delay(3_600_000, undefined, { signal: gone.signal });
    const most = Math.floor((prompt.length - 1) / blockSize);
    const hit = Math.min(await cache.run(Uint32Array.from(prompt)), most) * blockSize;
    await delay(((prompt.length - hit) / Number(values["prefill-rate"])) * 1000, undefined, { signal: gone.signal });
    waiting--;
    running++;
    isWaiting = false;
    const output = Array.from({ length: Number(body["max_tokens"] ?? 8) }, (_, at) => words[at % words.length] as string);
    const usage = usageOf(path, prompt.length, hit, output.length);
    const tokenMs = Number(values["token-ms"]);
    if (body["stream"] !== true) {
      await delay(output.length * tokenMs, undefined, { signal: gone.signal });
      return send(response, 200, answerOf(path, output.join(""), id, usage, body["model"]));
    }
    response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
    for (const [at, text] of output.entries()) {
      if (fault.mode === "half" && at > output.length / 2) return void response.destroy();
      response.write(eventOf(path, text, id));
      if (tokenMs > 0 || at % 100 === 99) await delay(tokenMs, undefined, { signal: gone.signal });
    }
    const wantsUsage = (body["stream_options"] as { include_usage?: boolean } | undefined)?.include_usage === true;
    if (wantsUsage || path === "/v1/messages" || path === "/v1/responses") response.write(`data: ${JSON.stringify({ id, choices: [], usage })}\n\n`);
    response.end("data: [DONE]\n\n");
  } catch (error) {
    if (!gone.signal.aborted) throw error;
  } finally {
    blocksInUse -= blocks;
    if (isWaiting) waiting--;
    else running--;
  }
}

const models = [values.model, ...values.lora].map((id) => ({ id, object: "model", owned_by: "vllm", parent: id === values.model ? null : values.model }));
const metrics = () =>
  [
    ["vllm:num_requests_running", running],
    ["vllm:num_requests_waiting", waiting],
    // As in vLLM, blocks that are only cached count as free.
    ["vllm:kv_cache_usage_perc", Math.min(1, blocksInUse / Number(values.blocks))],
  ]
    .map(([name, value]) => `# TYPE ${name} gauge\n${name}{engine="0",model_name="${values.model}"} ${value}\n`)
    .concat(`vllm:cache_config_info{block_size="${blockSize}",engine="0"} 1\n`)
    .join("");
const publisher = { enable_kv_cache_events: true, publisher: "zmq", endpoint: wildcard(cache.endpoint), replay_endpoint: wildcard(cache.replayEndpoint) };

async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const path = (request.url ?? "/").split("?")[0] ?? "/";
  if (path === "/health") return void response.writeHead(200).end();
  if (path === "/metrics") return send(response, 200, metrics());
  if (path === "/kv_event_sources") return send(response, 200, { "0": publisher });
  if (path === "/seen") return send(response, 200, { ...seen, running, waiting });
  if (path === "/v1/models") return send(response, 200, { object: "list", data: models });
  const body = await readBody(request);
  if (path === "/fault") {
    fault = { mode: String(body["mode"]), ms: Number(body["ms"] ?? 0) };
    release();
    held = new Promise((resolve) => {
      release = resolve;
    });
    return send(response, 200, fault);
  }
  if (path === "/tokenize" && fault.mode === "no tokens") return send(response, 500, { error: { message: "the tokenizer failed", code: 500 } });
  if (path === "/tokenize" && !values["no-tokenize"]) {
    seen.tokenized++;
    const tokens = promptOf("prompt" in body ? "/v1/completions" : "/v1/chat/completions", body);
    return send(response, 200, { count: tokens.length, max_model_len: 1 << 20, tokens });
  }
  if (path.endsWith("/render")) seen.rendered++;
  if (path.endsWith("/render") && values.render) {
    seen.tokenized++;
    return send(response, 200, { request_id: "r", token_ids: promptOf(path.slice(0, -"/render".length), body) });
  }
  // vLLM answers so without --enable-scale-out.
  if (path.endsWith("/render")) return send(response, 403, { error: { message: "Scale-out endpoints are disabled.", code: 403 } });
  if (path.endsWith("/tokenize")) return send(response, 404, { error: { message: `${values.name} has no ${path}`, code: 404 } });
  seen.requests++;
  seen.headers = request.headers;
  seen.paths = [...seen.paths.slice(-99), path];
  if (fault.mode === "garbage") return void request.socket.end("HTTP/1.1 what\r\n\r\nnothing of this is an answer");
  if (fault.mode === "429") return send(response, 429, { error: { message: "the engine is full", code: 429 } });
  if (fault.mode === "503") return send(response, 503, { error: { message: "the engine is not ready", code: 503 } });
  if (["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"].includes(path)) return generate(path, body, response);
  if (path === "/v1/embeddings") return send(response, 200, { object: "list", data: [{ object: "embedding", index: 0, embedding: [0.5] }], usage: { prompt_tokens: 1 } });
  const [, id = ""] = /^\/v1\/responses\/([^/]+)$/.exec(path) ?? [];
  if (responses.has(id)) return send(response, 200, { id, object: "response", status: "completed" });
  send(response, 404, { error: { message: `${values.name} has no ${path}`, code: 404 } });
}

const server = createServer((request, response) => {
  response.on("error", () => {});
  handle(request, response).catch((error: Error) => (response.headersSent ? response.destroy() : send(response, 400, { error: { message: error.message } })));
});
await new Promise<void>((resolve) => server.listen(Number(values.port), values.host, resolve));
if (values.indexer !== "") {
  const index = new IndexClient(values.indexer);
  await index.register({
    endpoint: cache.endpoint,
    replay_endpoint: cache.replayEndpoint,
    type: "vLLM",
    modelname: values.model,
    instance_id: values.name,
    block_size: blockSize,
    dp_rank: 0,
  });
}
process.stdout.write(`${values.name} ready at http://${values.host}:${(server.address() as AddressInfo).port}\n`);
