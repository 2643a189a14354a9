// Pipelined requests: all connections of a peer share what one connection would get.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Pipelined, TICK_MS } from "@svc/kit/proxy/pipelined.ts";

void test("a peer with many pipelining connections is read as often as a peer with one", (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const pipelined = new Pipelined();
  const read = new Map<string, number>();
  const sendAhead = (peer: string, connection: number) => {
    pipelined.wait(peer, () => {
      for (const name of [peer, `${peer} ${connection}`]) read.set(name, (read.get(name) ?? 0) + 1);
      sendAhead(peer, connection);
    });
  };
  for (let connection = 0; connection < 16; connection++) sendAhead("crowd", connection);
  sendAhead("one", 0);
  t.mock.timers.tick(160 * TICK_MS);
  assert.deepEqual([read.get("crowd"), read.get("one")], [160, 160]);
  for (let connection = 0; connection < 16; connection++) assert.equal(read.get(`crowd ${connection}`), 10, "its connections take turns");
  pipelined.close();
});

void test("a tick with nothing to read stops the timer until a connection waits again", (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const pipelined = new Pipelined();
  let reads = 0;
  for (let round = 1; round <= 2; round++) {
    pipelined.wait("a", () => reads++);
    t.mock.timers.tick(5 * TICK_MS);
    assert.equal(reads, round);
  }
  pipelined.close();
});
