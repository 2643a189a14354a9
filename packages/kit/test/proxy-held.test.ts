// Heads in pieces: how often they are parsed, in which order, and which connection is closed if there are too many.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ByteBuffer } from "../src/byte-buffer.ts";
import { INCOMPLETE } from "../src/proxy/head-lines.ts";
import { Peers } from "../src/proxy/peers.ts";
import { RequestHead } from "../src/proxy/request-head.ts";
import { type SlowHead, SlowHeads } from "../src/proxy/slow-heads.ts";

const MAX_BYTES = 32 * 1024;

/** Feeds a head in pieces like a connection; returns how many bytes were parsed in total, and where the body begins. */
function feed(text: Buffer, pieces: Iterable<number>): { parsed: number; bodyAt: number; held: Buffer } {
  const head = new RequestHead([], 128);
  let held: ByteBuffer | undefined;
  let parsed = 0;
  let at = 0;
  for (const size of pieces) {
    if (at >= text.length) break;
    const piece = Buffer.from(text.subarray(at, at + size));
    at += piece.length;
    if (held !== undefined && !held.appendToHead(piece, 0, piece.length, MAX_BYTES)) continue;
    held ??= new ByteBuffer(piece, 0, piece.length);
    parsed += held.length;
    const bodyAt = head.parse(held.bytes, 0, held.length);
    if (bodyAt !== INCOMPLETE) return { parsed, bodyAt, held: held.bytes };
    held.headIncomplete();
  }
  return { parsed, bodyAt: INCOMPLETE, held: held?.bytes ?? Buffer.alloc(0) };
}

void test("a head of 32 KiB that arrives byte by byte is parsed a few times, not once per byte", () => {
  const lines = Array.from({ length: 120 }, (_, index) => `X-Line-${index}: ${"v".repeat(250)}\r\n`).join("");
  const text = Buffer.from(`GET / HTTP/1.1\r\nHost: a\r\n${lines}\r\n`);
  assert.ok(text.length > 30_000 && text.length < MAX_BYTES);
  const { parsed, bodyAt } = feed(text, Array(text.length).fill(1));
  assert.equal(bodyAt, text.length);
  assert.ok(parsed <= 4 * text.length, `${parsed} bytes were parsed of ${text.length}`);
});

void test("a head is complete with its last byte, wherever it was cut, and the bytes after it remain", () => {
  fc.assert(
    fc.property(fc.infiniteStream(fc.integer({ min: 1, max: 40 })), fc.string({ maxLength: 20 }), (pieces, after) => {
      const head = Buffer.from("GET /a HTTP/1.1\r\nHost: a\r\nX-Some: thing\r\n\r\n");
      const { bodyAt, held } = feed(Buffer.concat([head, Buffer.from(after)]), pieces);
      assert.equal(bodyAt, head.length);
      assert.deepEqual(held.subarray(0, bodyAt), head);
    }),
  );
});

void test("the unread part of pending bytes is their end, and added bytes follow it without changing what was read", () => {
  const piece = fc.uint8Array({ maxLength: 3000 });
  fc.assert(
    fc.property(piece, fc.array(fc.tuple(fc.nat(), piece), { maxLength: 20 }), (first, steps) => {
      const held = new ByteBuffer(Buffer.from(first), 0, first.length);
      let expected = Buffer.from(first);
      for (const [number, added] of steps) {
        const read = held.bytes;
        const was = Buffer.from(read);
        const left = number % (expected.length + 1);
        held.keepLast(left).append(Buffer.from(added), 0, added.length);
        expected = Buffer.concat([expected.subarray(expected.length - left), added]);
        assert.deepEqual(held.bytes, expected);
        assert.deepEqual(read, was);
      }
    }),
  );
});

class Slow implements SlowHead {
  readonly peer: string;
  turns = 0;
  ended = false;
  readonly #all: SlowHeads;

  constructor(peer: string, all: SlowHeads) {
    this.peer = peer;
    this.#all = all;
    all.enter(this);
  }

  goOn(): void {
    this.turns++;
  }

  giveUp(): void {
    this.ended = true;
    this.#all.leave(this);
  }
}

void test("of too many unfinished heads the oldest of the peer with the most is closed, and other peers keep theirs", () => {
  const all = new SlowHeads({ unfinishedHeads: 10, unfinishedHeadsPerPeer: 6 });
  const few = [new Slow("few", all), new Slow("few", all)];
  const many = Array.from({ length: 9 }, () => new Slow("many", all));
  assert.deepEqual(
    many.map(({ ended }) => ended),
    [true, true, true, ...Array(6).fill(false)],
  );
  const third = Array.from({ length: 4 }, () => new Slow("third", all));
  assert.deepEqual(
    many.map(({ ended }) => ended),
    [...Array(5).fill(true), ...Array(4).fill(false)],
  );
  assert.ok([...few, ...third].every(({ ended }) => !ended));
});

void test("peers with unfinished heads are read in rotation, however many heads one of them has", async () => {
  const all = new SlowHeads({ unfinishedHeads: 5000, unfinishedHeadsPerPeer: 5000 });
  const many = Array.from({ length: 1000 }, () => new Slow("many", all));
  for (const head of many) all.wait(head);
  const one = new Slow("one", all);
  all.wait(one);
  while (one.turns === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  assert.ok(many.filter(({ turns }) => turns > 0).length < many.length / 2, "the one that came last had its turn among the first");
  all.close();
});

void test("a peer has its own limit, and a crowd from one peer gives way to another peer", () => {
  const peers = new Peers({ connections: 10, connectionsPerPeer: 8 });
  const closed: string[] = [];
  const connect = (peer: string, name: string, mayGiveWay = true): boolean => {
    if (peers.admit(peer) !== undefined) return false;
    peers.add({ peer, mayGiveWay, wire: { destroy: () => void closed.push(name) } });
    return true;
  };
  for (let index = 0; index < 8; index++) assert.ok(connect("crowd", `crowd ${index}`, index > 1));
  assert.match(peers.admit("crowd") ?? "", /503 .*This address has 8 connections already, which is the maximum/s);
  assert.ok(connect("a", "a") && connect("b", "b"));
  // All ten are taken, so the oldest of the crowd without a request is closed.
  assert.ok(connect("c", "c") && connect("c", "c2"));
  assert.deepEqual(closed, ["crowd 2", "crowd 3"]);
  assert.match(peers.admit("crowd") ?? "", /as many connections as it takes/);
});
