// Tests peers that violate the protocol: each connection ends with a reason, or waits without harm.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { type SocketOptions, ZmtpSocket } from "../src/zmtp/socket.ts";
import { bytesOf, eventually, greetingOf, hello, longHead, type RawPeer, readyOf, shortFrame, startRaw } from "./raw-zmtp.ts";
import { seeded } from "./stream-publisher.ts";

const MAX_BYTES = 1 << 20;
const SEED = Number(process.env["SVC_ZMTP_SEED"] ?? Math.floor(Math.random() * 1e9));

/** A subscriber that takes what comes, or leaves it. */
async function listen(peer: RawPeer, more: Partial<SocketOptions> & { leaves?: boolean } = {}) {
  const taken: Buffer[][] = [];
  const ended: string[] = [];
  const socket = new ZmtpSocket({
    type: "SUB",
    endpoints: [{ address: peer.address, binds: false }],
    maxMessageBytes: MAX_BYTES,
    onReadable() {
      for (let frames = more.leaves ? undefined : socket.front(); frames !== undefined; frames = socket.front()) {
        taken.push(frames.map((frame) => Buffer.from(frame)));
        socket.shift();
      }
    },
    onLost: (_peer, why) => void ended.push(`lost: ${why}`),
    onFailed: (_address, why) => void ended.push(`failed: ${why}`),
    ...more,
  });
  await socket.open();
  return {
    socket,
    taken,
    ended,
    async [Symbol.asyncDispose]() {
      socket.close();
    },
  };
}

const endings: [what: string, bytes: Buffer, why: RegExp][] = [
  ["an answer of another protocol", bytesOf("HTTP/1.1 400 Bad Request\r\n\r\n"), /^failed: what answers there does not speak ZMQ/],
  ["version 1", bytesOf(0xff, "\0\0\0\0\0\0\0\x01", 0x00, "abc"), /^failed: the peer speaks version 1 of ZMTP/],
  ["version 2", greetingOf({ major: 1 }), /^failed: the peer speaks version 2 of ZMTP/],
  ["another mechanism", greetingOf({ mechanism: "CURVE" }), /^failed: expected the security mechanism NULL, got "CURVE"/],
  ["another type of socket", bytesOf(greetingOf(), readyOf("ROUTER")), /^failed: the peer is a socket of type ROUTER; expected PUB or XPUB/],
  ["READY without a type", bytesOf(greetingOf(), 4, 6, 5, "READY"), /^failed: the peer is a socket of type \(none\)/],
  ["READY whose lengths do not fit", bytesOf(greetingOf(), 4, 9, 5, "READY", 200, "ab"), /^failed: the peer is a socket of type \(none\)/],
  ["a refusal", bytesOf(greetingOf(), 4, 9, 5, "ERROR", 2, "no"), /^failed: the peer refuses the connection: no/],
  ["a message in place of READY", bytesOf(greetingOf(), shortFrame(0, Buffer.from("x"))), /^failed: the peer sent a message where READY was expected/],
  [
    "a long message in place of READY",
    bytesOf(greetingOf(), longHead(0, 500_000n), Buffer.alloc(100)),
    /^failed: the peer sent a message where READY was expected/,
  ],
  ["another command in place of READY", bytesOf(greetingOf(), 4, 7, 4, "PING", 0, 0), /^failed: the peer sent the command "PING" where READY was expected/],
  ["a command without a name", bytesOf(greetingOf(), 4, 1, 9), /^failed: the peer sent a command without a name/],
  ["READY once more", bytesOf(hello, readyOf("PUB")), /^lost: the peer sent the command "READY" out of place/],
  ["a heartbeat that is too long", bytesOf(hello, 4, 24, 4, "PING", Buffer.alloc(19)), /^lost: the peer sent the command "PING" out of place/],
  ["an error later", bytesOf(hello, 4, 9, 5, "ERROR", 2, "no"), /^lost: the peer says: no/],
  ["a length above the maximum", bytesOf(hello, longHead(0, 2n ** 62n)), /^lost: the peer sent a message of \d+ bytes or more; the maximum is 1048576/],
  ["an unknown flag", bytesOf(hello, 0x10, 0), /^lost: the peer sent a frame that ZMTP does not have/],
];

for (const [what, bytes, why] of endings)
  void test(`${what} ends the connection with its reason, and the peer is dialled again`, async () => {
    await using peer = await startRaw((socket) => void socket.write(bytes));
    await using listener = await listen(peer);
    await eventually(
      what,
      () => listener.ended.length >= 2,
      () => listener.ended.join(" | "),
    );
    for (const ending of listener.ended) assert.match(ending, why);
    assert.ok(peer.sockets.length >= 2);
    assert.deepEqual(listener.taken, []);
  });

void test("a peer that sends nothing, half a greeting, or only a greeting is given up after the handshake's time", async () => {
  for (const said of [Buffer.alloc(0), greetingOf().subarray(0, 30), greetingOf()]) {
    await using peer = await startRaw((socket) => void socket.write(said));
    await using listener = await listen(peer, { handshakeMs: 50 });
    await eventually("given up twice", () => listener.ended.length >= 2);
    assert.match(listener.ended.join("\n"), /^(failed: the peer's handshake did not end within 50 ms\n?)+$/);
  }
});

void test("a peer that stops without closing is pinged, and given up when it does not answer", async () => {
  await using peer = await startRaw((socket) => void socket.write(hello));
  await using listener = await listen(peer, { heartbeatMs: 30 });
  await eventually("given up", () => listener.ended.length >= 1);
  assert.equal(listener.ended[0], "lost: the peer answers no heartbeats");
});

void test("a peer that answers heartbeats stays, and one of version 3.0 is never pinged", async () => {
  const ping = bytesOf(4, 7, 4, "PING", 0, 0);
  for (const minor of [1, 0]) {
    let pings = 0;
    await using peer = await startRaw((socket) => {
      socket.write(bytesOf(greetingOf({ minor }), readyOf("PUB")));
      socket.on("data", (chunk: Buffer) => {
        if (chunk.indexOf(ping) < 0) return;
        pings++;
        socket.write(bytesOf(4, 5, 4, "PONG"));
      });
    });
    await using listener = await listen(peer, { heartbeatMs: 20 });
    await delay(500);
    assert.deepEqual(listener.ended, []);
    assert.equal(listener.socket.connected, true);
    assert.ok(minor === 0 ? pings === 0 : pings > 2, `${pings}`);
    // The subscription to everything is a message in version 3.0, and a command since.
    const subscription = minor === 0 ? bytesOf(0, 1, 1) : bytesOf(4, 10, 9, "SUBSCRIBE");
    assert.ok(peer.received().indexOf(subscription) >= 64);
  }
});

void test("a heartbeat is answered with its context, and a peer that reads no answers is given up", async () => {
  const ping = bytesOf(4, 10, 4, "PING", 0, 5, "ctx");
  await using peer = await startRaw((socket) => void socket.write(bytesOf(hello, ping)));
  await using listener = await listen(peer);
  await eventually("the answer", () => peer.received().indexOf(bytesOf(4, 8, 4, "PONG", "ctx")) > 0);
  peer.sockets[0]?.pause();
  const many = Buffer.concat(Array.from({ length: 5000 }, () => ping));
  const flood = setInterval(() => peer.sockets[0]?.write(many), 1);
  await eventually("given up", () => listener.ended.length > 0);
  clearInterval(flood);
  assert.equal(listener.ended[0], "lost: the peer does not read what it is sent");
});

void test("a message that begins and does not end is given up, even if bytes keep coming", async () => {
  await using peer = await startRaw((socket) => {
    socket.write(bytesOf(hello, longHead(0, 200_000n)));
    const trickle = setInterval(() => socket.write("x"), 10);
    socket.on("close", () => clearInterval(trickle));
  });
  await using listener = await listen(peer, { heartbeatMs: 30 });
  await eventually("given up", () => listener.ended.length >= 1);
  assert.equal(listener.ended[0], "lost: the peer began a message and did not end it");
});

void test("messages that are not taken stay with the peer, and come complete and in order later, while another publisher is read", async () => {
  const COUNT = 2000;
  const body = (n: number) => Buffer.alloc(20_000, n % 251);
  await using slow = await startRaw((socket) => {
    socket.write(hello);
    for (let n = 0; n < COUNT; n++) socket.write(bytesOf(longHead(0, 20_000n), body(n)));
  });
  await using listener = await listen(slow, { leaves: true });
  await eventually("a message", () => listener.socket.front() !== undefined);
  const sent = slow.sockets[0];
  assert.ok(sent);
  // The socket is read no further than one read: even the kernel does not take the rest.
  const before = process.memoryUsage().arrayBuffers;
  await delay(300);
  assert.ok(sent.writableLength > (COUNT * 20_000) / 2, `${sent.writableLength}`);
  assert.ok(process.memoryUsage().arrayBuffers - before < 4 << 20);
  await using other = await startRaw((socket) => void socket.write(bytesOf(hello, shortFrame(0, Buffer.from("here")))));
  await using quick = await listen(other);
  await eventually("the other one's", () => quick.taken.length === 1);
  for (let n = 0; n < COUNT; n++) {
    await eventually(`message ${n}`, () => listener.socket.front() !== undefined);
    assert.ok(listener.socket.front()?.[0]?.equals(body(n)), `message ${n}`);
    listener.socket.shift();
  }
  assert.deepEqual(listener.ended, []);
});

void test("more large messages than are assembled at once all come, and one that stalls delays none of them for long", async () => {
  const large = Buffer.alloc(700_000, 5);
  const peers = await Promise.all(
    Array.from({ length: 12 }, (_, n) =>
      startRaw((socket) => void socket.write(bytesOf(hello, longHead(0, 700_000n), n < 4 ? large.subarray(0, 99_000) : large))),
    ),
  );
  const listeners = await Promise.all(peers.map((peer) => listen(peer, { heartbeatMs: 50 })));
  await eventually("eight of them", () => listeners.filter(({ taken }) => taken.length > 0).length === 8);
  for (const [n, { taken }] of listeners.entries()) if (n >= 4) assert.ok(taken[0]?.[0]?.equals(large));
  for (const { socket } of listeners) socket.close();
  for (const peer of peers) await peer[Symbol.asyncDispose]();
});

void test(`arbitrary bytes of a peer lead only to a connection that ends with a reason (seed ${SEED})`, async () => {
  const below = seeded(SEED);
  const good = shortFrame(0, Buffer.from("good"));
  await using peer = await startRaw((socket) => {
    const bytes = Buffer.concat([hello, good, longHead(1, 300n), Buffer.alloc(300), good, good]);
    // One byte is changed, one position is left out, or something is inserted.
    const at = below(bytes.length);
    const kind = below(3);
    if (kind === 0) bytes[at] = below(256);
    const sent =
      kind === 0
        ? bytes
        : Buffer.concat([bytes.subarray(0, at), kind === 1 ? Buffer.alloc(0) : Buffer.alloc(below(9), below(256)), bytes.subarray(at + below(3))]);
    const cut = below(sent.length);
    socket.write(sent.subarray(0, cut));
    setTimeout(() => socket.end(sent.subarray(cut)), below(3));
  });
  const listeners = await Promise.all(Array.from({ length: 40 }, () => listen(peer, { handshakeMs: 100 })));
  await eventually("each has been there some times", () => peer.sockets.length >= 400);
  for (const { taken, ended } of listeners) {
    for (const why of ended) assert.match(why, /^(lost|failed): \S/);
    for (const frames of taken) assert.ok(frames.length <= 8);
  }
  assert.ok(listeners.some(({ taken }) => taken.length > 0));
  for (const { socket } of listeners) socket.close();
});
