// Many streams that send nothing, and a client that reads slower than its engine writes: the router's memory stays bounded.
import assert from "node:assert/strict";
import { Agent, type ClientRequest, createServer, request, type ServerResponse } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { test } from "node:test";
import { chat, metric, openRouter, post, until } from "./stack.ts";

/** May be set higher by hand: the router needs two open files a stream, and so does this process. */
const STREAMS = Number(process.env["SVC_TEST_IDLE_STREAMS"] ?? 500);
const PROMPT = "x".repeat(4_000);
/** Both sockets, their parsers and the request of one stream, with room for what the garbage collector has not taken yet. */
const MOST_BYTES_EACH = 160 * 1024;
const SLACK_BYTES = 96 * 2 ** 20;
const EVENT = `data: {"choices":[{"index":0,"delta":{"content":"${"y".repeat(1_000)}"}}]}\n\n`;

/** Sends one event and then nothing; with "endless" in the prompt, as much as the router takes. */
async function openEngine() {
  const open = new Set<ServerResponse>();
  const seen = { endlessBytes: 0 };
  const server = createServer(async (asked, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of asked) chunks.push(chunk as Buffer);
    if (asked.url === "/v1/models") return response.end('{"object":"list","data":[{"id":"demo","object":"model"}]}');
    if (asked.method !== "POST" || asked.url !== "/v1/chat/completions") return response.end("{}");
    const text = Buffer.concat(chunks).toString();
    if (!text.includes('"stream":true')) return response.end('{"choices":[]}');
    open.add(response);
    response.once("close", () => open.delete(response));
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(EVENT);
    if (!text.includes("endless")) return;
    const pour = () => {
      while (!response.destroyed) {
        seen.endlessBytes += EVENT.length;
        if (!response.write(EVENT)) return void response.once("drain", pour);
      }
    };
    pour();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", 4_096, resolve));
  return {
    name: "idle",
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    open,
    seen,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

const residentBytes = (url: string) => metric(url, "process_resident_memory_bytes");

async function nothingHeld(url: string): Promise<void> {
  for (const name of [
    'svc_router_engine_in_flight{engine="idle"}',
    'svc_router_engine_waiting_tokens{engine="idle"}',
    "svc_router_held_bytes",
    "svc_router_queued_requests",
  ])
    await until(
      `${name} is 0`,
      () => metric(url, name),
      (value) => value === 0,
    );
}

void test(`${STREAMS} streams that wait for their next token hold no bodies and little memory, and nothing once their clients have left`, async () => {
  await using engine = await openEngine();
  await using router = await openRouter([engine], [`--router.max_in_flight=${STREAMS + 1}`]);
  const agent = new Agent({ maxSockets: STREAMS });
  const body = JSON.stringify(chat(PROMPT, { stream: true }));
  const before = await residentBytes(router.url);
  const asked: ClientRequest[] = [];
  let begun = 0;
  for (let at = 0; at < STREAMS; at++) {
    const asking = request(`${router.url}/v1/chat/completions`, { agent, method: "POST", headers: { "content-type": "application/json" } }, (answer) => {
      answer.on("error", () => {});
      answer.once("data", () => begun++);
    });
    asking.on("error", () => {});
    asking.end(body);
    asked.push(asking);
    // Connections come as fast as they are answered, not faster than a listener takes them.
    if (at % 200 === 199)
      await until(
        "they have begun",
        () => begun,
        (count) => count > at - 200,
      );
  }
  await until(
    "all streams have begun",
    () => begun,
    (count) => count === STREAMS,
  );
  assert.equal(await metric(router.url, 'svc_router_engine_in_flight{engine="idle"}'), STREAMS);
  assert.equal(await metric(router.url, "svc_router_held_bytes"), 0, "a stream that has begun holds its body no longer");
  const grown = (await residentBytes(router.url)) - before;
  assert.ok(grown < STREAMS * MOST_BYTES_EACH + SLACK_BYTES, `the router grew by ${Math.round(grown / 1024)} KiB for ${STREAMS} streams`);
  assert.equal((await post(router.url, "/v1/chat/completions", chat("a short one"))).status, 200, "others are served meanwhile");
  for (const asking of asked) asking.destroy();
  await until(
    "every stream has ended on the engine",
    () => engine.open.size,
    (size) => size === 0,
  );
  await nothingHeld(router.url);
  agent.destroy();
});

void test("a client that reads a byte now and then stops its engine from writing, and leaves nothing behind", async () => {
  await using engine = await openEngine();
  await using router = await openRouter([engine]);
  const before = await residentBytes(router.url);
  const body = JSON.stringify(chat("endless", { stream: true }));
  const { hostname, port } = new URL(router.url);
  const socket = connect(Number(port), hostname);
  socket.on("error", () => {});
  socket.pause();
  socket.write(`POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  // The engine is stopped once three looks in a row, with a byte read before each, find that it wrote nothing more.
  let last = -1;
  let still = 0;
  await until(
    "the engine waits for the client",
    async () => {
      socket.read(1);
      await new Promise((resolve) => setTimeout(resolve, 300));
      still = engine.seen.endlessBytes === last && last > 0 ? still + 1 : 0;
      last = engine.seen.endlessBytes;
      return still;
    },
    (looks) => looks >= 3,
  );
  const grown = (await residentBytes(router.url)) - before;
  assert.ok(grown < SLACK_BYTES, `the router grew by ${Math.round(grown / 1024)} KiB for a slow client`);
  assert.equal(await metric(router.url, 'svc_router_engine_fit{engine="idle"}'), 1, "the engine is not blamed");
  socket.destroy();
  await until(
    "the stream has ended on the engine",
    () => engine.open.size,
    (size) => size === 0,
  );
  await nothingHeld(router.url);
});
