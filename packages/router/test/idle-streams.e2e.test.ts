// Many streams that send nothing, and a client that reads slower than its engine writes: the router's memory stays bounded.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { idleEngine, nothingHeld, openStreams, residentBytes } from "./idle-streams.ts";
import { chat, metric, openRouter, post, until } from "./stack.ts";

const STREAMS = 500;
/** Both sockets, their parsers and the request of one stream, with room for what the garbage collector has not taken yet. */
const MOST_BYTES_EACH = 160 * 1024;
const SLACK_BYTES = 96 * 2 ** 20;
void test(`${STREAMS} streams that wait for their next token hold no bodies and little memory, and nothing once their clients have left`, async () => {
  await using engine = await idleEngine();
  await using router = await openRouter([engine], [`--router.max_in_flight=${STREAMS + 1}`]);
  const before = await residentBytes(router.url);
  const leave = await openStreams(router.url, STREAMS);
  assert.equal(await metric(router.url, 'svc_router_engine_in_flight{engine="idle"}'), STREAMS);
  assert.equal(await metric(router.url, "svc_router_held_bytes"), 0, "a stream that has begun holds its body no longer");
  const grown = (await residentBytes(router.url)) - before;
  assert.ok(grown < STREAMS * MOST_BYTES_EACH + SLACK_BYTES, `the router grew by ${Math.round(grown / 1024)} KiB for ${STREAMS} streams`);
  assert.equal((await post(router.url, "/v1/chat/completions", chat("a short one"))).status, 200, "others are served meanwhile");
  leave();
  await until(
    "every stream has ended on the engine",
    () => engine.open(),
    (size) => size === 0,
  );
  await nothingHeld(router.url);
});

void test("a client that reads a byte now and then stops its engine from writing, and leaves nothing behind", async () => {
  await using engine = await idleEngine();
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
      still = (await engine.endlessBytes()) === last && last > 0 ? still + 1 : 0;
      last = await engine.endlessBytes();
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
    () => engine.open(),
    (size) => size === 0,
  );
  await nothingHeld(router.url);
});
