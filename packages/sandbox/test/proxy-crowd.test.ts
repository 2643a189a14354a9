// Many connections of one client: slow heads, idle connections, unread answers; other clients are served meanwhile.
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { Pipelined } from "@svc/kit/proxy/pipelined.ts";
import { dial, openFixture } from "./proxy-fixture.ts";

const REQUEST = "GET /v2/sandboxes HTTP/1.1\r\nHost: a\r\n\r\n";
const isWhole = (received: string) => received.includes('"who":"control"');

/** Opens a connection from another loopback address, which counts as another peer. */
async function from(address: string, port: number): Promise<{ socket: Socket; received: () => string } & Disposable> {
  const socket = connect({ host: "127.0.0.1", port, localAddress: address });
  let received = "";
  socket.setEncoding("latin1").on("error", () => {});
  socket.on("data", (text) => (received += text));
  await once(socket, "connect");
  return { socket, received: () => received, [Symbol.dispose]: () => socket.destroy() };
}

void test("of many heads that arrive byte by byte from one address the oldest are evicted, and others are answered", async () => {
  await using fixture = await openFixture({ limits: { unfinishedHeadsPerPeer: 100 } });
  const slow = Array.from({ length: 400 }, () => dial(fixture.port));
  const sent = "GET /v2/sandboxes HTTP/1.1\r\nHost: ";
  let at = 0;
  const trickle = setInterval(() => {
    for (const { socket } of slow) if (socket.writable) socket.write(sent[at % sent.length] ?? "");
    at++;
  }, 100);
  await until("the oldest are refused", () => (slow.filter(({ received }) => received.startsWith("HTTP/1.1 408")).length >= 300 ? true : undefined));
  for (let round = 0; round < 5; round++) assert.match(await fixture.raw(REQUEST, isWhole), /^HTTP\/1.1 200 /);
  using other = await from("127.0.0.2", fixture.port);
  other.socket.write(REQUEST);
  await until("another peer is answered", () => (isWhole(other.received()) ? true : undefined));
  clearInterval(trickle);
  assert.match(slow.find(({ received }) => received !== "")?.received ?? "", /Too many request heads of this client are unfinished/);
  for (const { socket } of slow) socket.destroy();
});

void test("a head that arrives byte by byte is answered like one that arrives in one piece", async () => {
  await using fixture = await openFixture();
  using client = dial(fixture.port);
  client.socket.setNoDelay(true);
  for (const byte of REQUEST) {
    client.send(byte);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  assert.match(await client.until(isWhole), /^HTTP\/1.1 200 /);
  // The connection continues with the next head.
  client.send(REQUEST);
  await client.until((received) => received.split('"who":"control"').length === 3);
});

void test("pipelined requests are answered in order, and none beyond the free row before its tick, whatever arrives meanwhile", async (t) => {
  const wait = Pipelined.prototype.wait;
  let [ticks, waiting, mostWaiting] = [0, 0, 0];
  t.mock.method(Pipelined.prototype, "wait", function (this: Pipelined, peer: string, read: () => void) {
    mostWaiting = Math.max(mostWaiting, ++waiting);
    wait.call(this, peer, () => {
      ticks++;
      waiting--;
      read();
    });
  });
  await using fixture = await openFixture();
  using client = dial(fixture.port);
  client.socket.setNoDelay(true);
  const count = 300;
  const ahead = Array.from({ length: count }, (_, at) => `GET /v2/sandboxes?at=${at} HTTP/1.1\r\nHost: a\r\n\r\n`);
  // The first part has more requests than are read without a wait (FREE_ROW); the rest arrives faster than one request per tick, in pieces that end anywhere.
  client.send(ahead.slice(0, 150).join(""));
  const rest = ahead.slice(150).join("");
  for (let at = 0; at < rest.length; at += 149) {
    client.send(rest.slice(at, at + 149));
    await new Promise((resolve) => setTimeout(resolve, 4));
  }
  const received = await client.until((text) => text.split('"who":"control"').length > count);
  assert.deepEqual(
    [...received.matchAll(/"url":"\/v2\/sandboxes\?at=(\d+)"/g)].map(([, at]) => Number(at)),
    ahead.map((_, at) => at),
  );
  assert.ok(ticks >= count - 40, `only ${ticks} of ${count} requests waited for their tick`);
  assert.equal(mostWaiting, 1, "while it waits, none of its requests is processed");
});

void test("an address with its maximum of connections is refused another one with the reason, and another address is served", async () => {
  await using fixture = await openFixture({ limits: { connectionsPerPeer: 5 } });
  const held = await Promise.all(Array.from({ length: 5 }, () => from("127.0.0.1", fixture.port)));
  await until("all are counted", async () => ((await fixture.raw(REQUEST, (_, closed?: boolean) => closed === true)).includes("503") ? true : undefined));
  using other = await from("127.0.0.2", fixture.port);
  other.socket.write(REQUEST);
  await until("the other address is answered", () => (isWhole(other.received()) ? true : undefined));
  for (const each of held) each[Symbol.dispose]();
});

void test("if one address has all connections, an idle one of them is closed for another address", async () => {
  await using fixture = await openFixture({ limits: { connections: 6 } });
  const held = await Promise.all(Array.from({ length: 6 }, () => from("127.0.0.1", fixture.port)));
  using other = await from("127.0.0.2", fixture.port);
  other.socket.write(REQUEST);
  await until("the other address is answered", () => (isWhole(other.received()) ? true : undefined));
  await until("one of the crowd was closed", () => (held.filter(({ socket }) => socket.closed || socket.readableEnded).length === 1 ? true : undefined));
  for (const each of held) each[Symbol.dispose]();
});

void test("a long pipeline of requests is answered completely, in order", async () => {
  await using fixture = await openFixture();
  using client = dial(fixture.port);
  const count = 200;
  client.send(Array.from({ length: count }, (_, index) => `GET /v2/sandboxes?at=${index}x HTTP/1.1\r\nHost: a\r\n\r\n`).join(""));
  const received = await client.until((text) => text.includes(`at=${count - 1}x`));
  const order = [...received.matchAll(/at=(\d+)x/g)].map(([, at]) => Number(at));
  assert.deepEqual(
    order,
    Array.from({ length: count }, (_, index) => index),
  );
});
