// Engines for the router's benches: one process with many addresses, which answer at once, or stream tokens that say when they were sent.
// Arguments: how many addresses, the interval between two tokens in milliseconds, how many tokens a stream has.
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

const [addresses = 1, tokenMs = 100, tokens = 100] = process.argv.slice(2).map(Number);
const usage = { prompt_tokens: 1_024, completion_tokens: 8, total_tokens: 1_032, prompt_tokens_details: { cached_tokens: 0 } };
const whole = JSON.stringify({
  id: "chatcmpl-1",
  object: "chat.completion",
  created: 1,
  model: "m",
  choices: [{ index: 0, message: { role: "assistant", content: "The answer has some words, as answers do." }, finish_reason: "stop" }],
  usage,
});
const constant: Readonly<Record<string, unknown>> = {
  "/health": {},
  "/v1/models": { object: "list", data: [{ id: "m", object: "model", owned_by: "vllm" }] },
  "/get_model_info": { model_path: "m", is_generation: true },
  "/model_info": { model_path: "m", is_generation: true },
  "/get_server_info": { model_id: "m", model_path: "m", version: "0" },
  "/server_info": { model_id: "m", model_path: "m", version: "0" },
  "/tokenize": { count: 1_024, max_model_len: 1 << 20, tokens: Array.from({ length: 1_024 }, (_, at) => at) },
};
const constants = new Map(Object.entries(constant).map(([path, answer]) => [path, JSON.stringify(answer)]));

async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const path = (request.url ?? "").split("?")[0] ?? "";
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const known = constants.get(path);
  if (known !== undefined) return void response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(known) }).end(known);
  if (path === "/metrics")
    return void response.writeHead(200, { "content-type": "text/plain" }).end("vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n");
  if (request.method !== "POST") return void response.writeHead(404).end();
  if (!Buffer.concat(chunks).includes('"stream":true'))
    return void response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(whole) }).end(whole);
  response.writeHead(200, { "content-type": "text/event-stream" });
  let sent = 0;
  // Streams do not beat together.
  await new Promise((resolve) => setTimeout(resolve, Math.random() * tokenMs));
  const timer = setInterval(() => {
    if (response.destroyed) return clearInterval(timer);
    sent++;
    response.write(`data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"${process.hrtime.bigint()}"}}]}\n\n`);
    if (sent < tokens) return;
    clearInterval(timer);
    response.end("data: [DONE]\n\n");
  }, tokenMs);
}

const ports = await Promise.all(
  Array.from({ length: addresses }, async () => {
    const server = createServer({ keepAliveTimeout: 0 }, (request, response) => void handle(request, response).catch(() => response.destroy()));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", 4_096, resolve));
    return (server.address() as AddressInfo).port;
  }),
);
process.stdout.write(`${JSON.stringify(ports)}\n`);
process.stdin.resume().on("end", () => process.exit(0));
