// Tests the ZMTP sockets with libzmq on the other side: every kind of endpoint, sizes around the limits of frames, heartbeats, restarts,
// requests.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { freePorts } from "@svc/harness/ports.ts";
import { Publisher, Router } from "zeromq";
import { Dealer } from "../src/zmtp/dealer.ts";
import { ZmtpSocket } from "../src/zmtp/socket.ts";
import { eventually } from "./raw-zmtp.ts";

const MAX_BYTES = 16 << 20;
const SIZES = [0, 1, 254, 255, 256, 257, 65_535, 65_536, 1_000_000, 5_000_000];

/** Subscribes, and takes every message in. */
async function subscribe(address: string, binds = false) {
  const taken: Buffer[][] = [];
  const ended: string[] = [];
  const socket = new ZmtpSocket({
    type: "SUB",
    endpoints: [{ address, binds }],
    maxMessageBytes: MAX_BYTES,
    onReadable() {
      for (let frames = socket.front(); frames !== undefined; frames = socket.front()) {
        taken.push(frames.map((frame) => Buffer.from(frame)));
        socket.shift();
      }
    },
    onLost: (_peer, why) => void ended.push(why),
  });
  await socket.open();
  return { socket, taken, ended, [Symbol.dispose]: () => socket.close() };
}

/** Waits until one of the publisher's messages comes: it sends to no one before it has the subscription. */
async function heard(publisher: Publisher, taken: Buffer[][], word: string): Promise<void> {
  const beat = setInterval(() => void publisher.send([word]).catch(() => {}), 10);
  await eventually(`"${word}"`, () => taken.some(([first]) => first?.toString() === word));
  clearInterval(beat);
}

const folder = mkdtempSync(join(tmpdir(), "zmtp-"));
process.once("exit", () => rmSync(folder, { recursive: true, force: true }));

const endpoints: [name: string, bind: string, connect?: string][] = [
  ["tcp", "tcp://127.0.0.1:*"],
  ["tcp by name", "tcp://127.0.0.1:*", "localhost"],
  ["a unix socket", `ipc://${folder}/live`],
  ["a unix socket without a file", `ipc://@svc-zmtp-${process.pid}`],
];
for (const [name, bind, host] of endpoints)
  void test(`messages of all sizes come from libzmq over ${name}`, async () => {
    const publisher = new Publisher({ linger: 0, sendHighWaterMark: 0 });
    await publisher.bind(bind);
    const address = publisher.lastEndpoint ?? bind;
    using subscriber = await subscribe(host === undefined ? address : address.replace("127.0.0.1", host));
    await heard(publisher, subscriber.taken, "first");
    subscriber.taken.length = 0;
    for (const size of SIZES) await publisher.send(["", Buffer.alloc(8, size % 256), Buffer.alloc(size, size % 255)]);
    await publisher.send(["end"]);
    await eventually("the last", () => subscriber.taken.at(-1)?.[0]?.toString() === "end");
    const whole = subscriber.taken.filter(({ length }) => length === 3);
    assert.deepEqual(
      whole.map(([, , payload]) => payload?.length),
      SIZES,
    );
    for (const [at, [, sequence, payload]] of whole.entries()) {
      const size = SIZES[at] as number;
      assert.ok(sequence?.equals(Buffer.alloc(8, size % 256)) && payload?.equals(Buffer.alloc(size, size % 255)));
    }
    assert.deepEqual(subscriber.ended, []);
    publisher.close();
  });

void test("publishers that connect to our address are all heard", async () => {
  const [port = 0] = await freePorts(1);
  using subscriber = await subscribe(`tcp://*:${port}`, true);
  const publishers = ["a", "b", "c"].map(() => new Publisher({ linger: 0 }));
  for (const [n, publisher] of publishers.entries()) {
    publisher.connect(`tcp://127.0.0.1:${port}`);
    await heard(publisher, subscriber.taken, `publisher ${n}`);
  }
  for (const publisher of publishers) publisher.close();
  await eventually("all are gone", () => !subscriber.socket.connected);
});

void test("a publisher that comes back on its address is heard again", async () => {
  const [port = 0] = await freePorts(1);
  using subscriber = await subscribe(`tcp://127.0.0.1:${port}`);
  for (let life = 0; life < 3; life++) {
    const publisher = new Publisher({ linger: 0 });
    await publisher.bind(`tcp://127.0.0.1:${port}`);
    await heard(publisher, subscriber.taken, `life ${life}`);
    publisher.close();
    await eventually("it is gone", () => !subscriber.socket.connected);
  }
  assert.equal(subscriber.ended.length, 3);
});

void test("libzmq's own heartbeats are answered, so a quiet connection stays open", async () => {
  const publisher = new Publisher({ linger: 0, heartbeatInterval: 20, heartbeatTimeout: 2000 });
  await publisher.bind("tcp://127.0.0.1:*");
  using subscriber = await subscribe(publisher.lastEndpoint as string);
  await heard(publisher, subscriber.taken, "first");
  await delay(500);
  await heard(publisher, subscriber.taken, "second");
  assert.deepEqual(subscriber.ended, []);
  publisher.close();
});

void test("a ROUTER sees a request like a REQ's, its answer comes in order, and a request without an answer fails in time", async () => {
  const router = new Router({ linger: 0, sendHighWaterMark: 0 });
  await router.bind("tcp://127.0.0.1:*");
  const endpoint = { address: router.lastEndpoint as string, binds: false };
  const serving = (async () => {
    const [identity = Buffer.alloc(0), empty, start] = await router.receive();
    assert.deepEqual([empty?.length, start?.toString()], [0, "from 7"]);
    for (let n = 0; n < 5000; n++) await router.send([identity, "", `${n}`, Buffer.alloc(n)]);
  })();
  const dealer = new Dealer({ endpoint, maxMessageBytes: MAX_BYTES, timeoutMs: 30_000 });
  await dealer.open();
  dealer.request([Buffer.alloc(0), Buffer.from("from 7")]);
  for (let n = 0; n < 5000; n++) {
    const [, number, payload] = await dealer.receive();
    assert.deepEqual([number?.toString(), payload?.length], [`${n}`, n]);
  }
  await serving;
  const waiting = dealer.receive();
  router.close();
  await assert.rejects(waiting, /ended/);
  dealer.close();
  const late = new Dealer({ endpoint, maxMessageBytes: MAX_BYTES, timeoutMs: 100 });
  await late.open();
  late.request([Buffer.alloc(0), Buffer.from("from 8")]);
  await assert.rejects(late.receive(), /ECONNREFUSED/);
  late.close();
});
