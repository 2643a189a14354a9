// The parsers of outside input, without a kernel: DNS answers, messages of denied packets, addresses that names opened.
import assert from "node:assert/strict";
import { test } from "node:test";
import { writtenName } from "@svc/harness/network-names.ts";
import fc from "fast-check";
import { addressesIn, nameAsked } from "../src/dns/answer.ts";
import { parseAddress } from "../src/egress/cidr.ts";
import { openEgress } from "../src/egress/policy.ts";
import { Fence, MAX_ADDRESSES } from "../src/network/fence.ts";
import { slotAt } from "../src/network/names.ts";
import { NotedStream, readPacket } from "../src/network/nflog.ts";

type Record = { owner: Buffer; type: number; ttl: number; data: Buffer };

function answer(question: Buffer, records: readonly Record[]): Buffer {
  const header = Buffer.from([0x12, 0x34, 0x81, 0x80, 0, 1, 0, records.length, 0, 0, 0, 0]);
  const bodies = records.map(({ owner, type, ttl, data }) => {
    const fixed = Buffer.alloc(10);
    fixed.writeUInt16BE(type, 0);
    fixed.writeUInt16BE(1, 2);
    fixed.writeUInt32BE(ttl, 4);
    fixed.writeUInt16BE(data.length, 8);
    return Buffer.concat([owner, fixed, data]);
  });
  return Buffer.concat([header, question, Buffer.from([0, 1, 0, 1]), ...bodies]);
}

const asked = writtenName("WWW.example.com");
/** The name of the question, as a compression pointer. */
const same = Buffer.from([0xc0, 12]);
const address = (text: string): Buffer => Buffer.from(text.split(".").map(Number));
const record = (owner: Buffer, type: number, data: Buffer, ttl = 60): Record => ({ owner, type, ttl, data });

void test("an answer's addresses are those to which its aliases lead, in any order", () => {
  const message = answer(asked, [
    record(writtenName("edge.test"), 1, address("3.3.3.3")),
    record(writtenName("cdn.test"), 5, writtenName("Edge.test")),
    record(same, 5, writtenName("cdn.test")),
    record(writtenName("stranger.test"), 1, address("4.4.4.4")),
    record(same, 1, address("5.5.5.5"), 7),
    record(same, 28, Buffer.alloc(16)),
    record(same, 1, Buffer.alloc(3)),
  ]);
  assert.equal(nameAsked(message), "www.example.com");
  assert.deepEqual(addressesIn(message, 3600), [
    { address: "3.3.3.3", ttlSeconds: 60 },
    { address: "5.5.5.5", ttlSeconds: 7 },
  ]);
});

void test("cyclic aliases end, and times to live are lowered in the answer itself", () => {
  const message = answer(asked, [
    record(same, 5, writtenName("b.test"), 100_000),
    record(writtenName("b.test"), 5, same, 100_000),
    record(writtenName("b.test"), 1, address("3.3.3.3"), 100_000),
  ]);
  assert.deepEqual(addressesIn(message, 3600), [{ address: "3.3.3.3", ttlSeconds: 3600 }]);
  assert.deepEqual(addressesIn(message, 100_000), [{ address: "3.3.3.3", ttlSeconds: 3600 }]);
});

void test("a label with a dot, or with other octets invalid in host names, makes a name that no rule matches", () => {
  const label = Buffer.concat([Buffer.from([4]), Buffer.from("evil"), Buffer.from([11]), Buffer.from("example.com"), Buffer.from([0])]);
  assert.equal(nameAsked(answer(label, [])), undefined);
  assert.equal(nameAsked(answer(Buffer.from([2, 0x61, 0x20, 0]), [])), undefined);
});

void test("no bytes from a resolver make the node fail or take long", () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 12, maxLength: 700 }), fc.boolean(), (bytes, plain) => {
      const message = plain ? Buffer.from(bytes) : Buffer.concat([answer(asked, []).subarray(0, 12 + asked.length + 4), Buffer.from(bytes)]);
      if (!plain) message.writeUInt16BE(300, 6);
      for (const { address: found } of addressesIn(message, 60)) assert.notEqual(parseAddress(found), undefined);
    }),
    { numRuns: 2000 },
  );
});

function noted(reason: string, packet: Buffer): Buffer {
  const attribute = (type: number, value: Buffer): Buffer => {
    const header = Buffer.alloc(4);
    header.writeUInt16LE(4 + value.length, 0);
    header.writeUInt16LE(type, 2);
    return Buffer.concat([header, value, Buffer.alloc(-value.length & 3)]);
  };
  const message = Buffer.concat([
    Buffer.from([2, 0, 0, 9]),
    attribute(10, Buffer.from(`${reason}\0`)),
    attribute(4, Buffer.from([0, 0, 0, 5])),
    attribute(9, packet),
  ]);
  const header = Buffer.alloc(16);
  header.writeUInt32LE(message.length, 8);
  return Buffer.concat([header, message]);
}

const packet = Buffer.concat([
  Buffer.from([0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0]),
  address("10.200.0.5"),
  address("8.8.8.8"),
  Buffer.from([0x9c, 0x40, 0x01, 0xbb]),
]);
const fileHeader = Buffer.from("d4c3b2a1020004000000000000000000c0000000ef000000", "hex");

void test("denied packets are parsed completely, however the stream is cut", () => {
  const expected = { reason: "policy", interfaceIndex: 5, protocol: "tcp", source: "10.200.0.5", address: "8.8.8.8", port: 443 };
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 5 }), fc.integer({ min: 1, max: 90 }), (count, piece) => {
      const bytes = Buffer.concat([fileHeader, ...Array.from({ length: count }, () => noted("policy", packet))]);
      const stream = new NotedStream();
      const out = [];
      for (let at = 0; at < bytes.length; at += piece) out.push(...stream.take(bytes.subarray(at, at + piece)));
      assert.deepEqual(
        out,
        Array.from({ length: count }, () => expected),
      );
    }),
  );
});

void test("an invalid stream or packet is detected", () => {
  assert.throws(() => [...new NotedStream().take(Buffer.alloc(24))], /no pcap stream/);
  fc.assert(fc.property(fc.uint8Array({ maxLength: 80 }), (bytes) => void readPacket(Buffer.from(bytes))));
  const fragment = Buffer.from(packet);
  fragment.writeUInt16BE(100, 6);
  assert.equal(readPacket(fragment)?.port, undefined);
});

const slot = slotAt("abc123", { base: parseAddress("10.200.0.0") ?? 0, prefixLength: 22 }, 7);

void test("a sandbox that resolves names without end has its oldest addresses closed", () => {
  const fence = new Fence("abc123", slot, { ...openEgress, allowOut: ["*.test"], denyOut: ["0.0.0.0/0"] });
  for (let at = 0; at < MAX_ADDRESSES; at++) fence.learn("a.test", [{ address: `1.1.${at >> 8}.${at & 255}`, ttlSeconds: 1 }], 0);
  const text = fence.learn("a.test", [{ address: "2.2.2.2", ttlSeconds: 1 }], 0);
  assert.match(text, /add element inet svc_abc123 names_7 \{ 2\.2\.2\.2 timeout 90s comment "a\.test" \}/);
  assert.match(text, /delete element inet svc_abc123 names_7 \{ 1\.1\.0\.0 \}/);
  assert.equal(fence.nameOf("1.1.0.0"), undefined);
});

void test("an address that stays open long enough is not renewed, and one that expires soon is", () => {
  const fence = new Fence("abc123", slot, { ...openEgress, allowOut: ["a.test"], allowInternet: false });
  const found = [{ address: "2.2.2.2", ttlSeconds: 300 }];
  assert.notEqual(fence.learn("a.test", found, 0), "");
  assert.equal(fence.learn("a.test", found, 200_000), "");
  assert.notEqual(fence.learn("a.test", found, 300_000), "");
  assert.equal(fence.learn("b.test", [{ address: "3.3.3.3", ttlSeconds: 300 }], 0), "");
  assert.equal(fence.nameOf("3.3.3.3"), "b.test");
});
