// The parts of the networks that need no kernel: address blocks, DNS messages, resolvers, batches.
import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import fc from "fast-check";
import { Frames, frame } from "../src/dns/forward.ts";
import { answers, questionOf, refusal } from "../src/dns/message.ts";
import { openResolvers, parseResolvConf, parseUpstream } from "../src/dns/resolvers.ts";
import { openDns } from "../src/dns/server.ts";
import { contains, formatCidr, overlaps, parseCidr, sizeOf } from "../src/egress/cidr.ts";
import { Batcher } from "../src/network/batch.ts";

const cidrs = fc.tuple(fc.nat(2 ** 32 - 1), fc.integer({ min: 0, max: 32 })).map(([address, prefixLength]) => {
  const size = 2 ** (32 - prefixLength);
  return { base: Math.floor(address / size) * size, prefixLength };
});

void test("an address block survives formatting and parsing", () => {
  fc.assert(fc.property(cidrs, (cidr) => assert.deepEqual(parseCidr(formatCidr(cidr)), cidr)));
});

void test("two address blocks overlap exactly when one contains the other's first address", () => {
  fc.assert(fc.property(cidrs, cidrs, (a, b) => assert.equal(overlaps(a, b), contains(a, b.base) || contains(b, a.base))));
  fc.assert(fc.property(cidrs, (a) => assert.ok(contains(a, a.base + sizeOf(a) - 1) && !contains(a, a.base + sizeOf(a)))));
});

void test("an invalid address block is refused", () => {
  for (const text of ["", "10.0.0.0/33", "10.0.0.1/8", "10.0.0.0/8/8", "10.0.0/8", "10.0.0.256/32", "::/0", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8 "]) {
    assert.equal(parseCidr(text), undefined, text);
  }
});

// example.com A IN, id 0x1234, recursion desired
const query = Buffer.from("123401000001000000000000076578616d706c6503636f6d0000010001", "hex");
const edns = Buffer.concat([query.subarray(0, 11), Buffer.from([1]), query.subarray(12), Buffer.from("00002904d0000000000000", "hex")]);

void test("a refusal repeats id and question, and says why to a client that speaks EDNS", () => {
  const plain = refusal(query, "REFUSED", "because");
  assert.equal(plain.readUInt16BE(0), 0x1234);
  assert.equal((plain[3] ?? 0) & 15, 5);
  assert.ok(answers(plain, 0x1234, questionOf(query) ?? Buffer.alloc(0)));
  assert.ok(!plain.includes("because"));
  const explained = refusal(edns, "REFUSED", "because");
  assert.equal(explained.readUInt16BE(10), 1);
  assert.ok(explained.includes("because"));
});

void test("no bytes in a sandbox's DNS message make the node fail", () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 12, maxLength: 600 }), (bytes) => {
      const message = Buffer.from(bytes);
      assert.ok((questionOf(message)?.length ?? 0) <= message.length - 12);
      assert.ok(refusal(message, "FORMERR", "x").length >= 12);
    }),
  );
});

void test("an answer with another id or another question is ignored", () => {
  const question = questionOf(query) ?? Buffer.alloc(0);
  const answer = refusal(query, "SERVFAIL", "");
  assert.ok(answers(answer, 0x1234, question));
  assert.ok(!answers(answer, 0x1235, question));
  assert.ok(!answers(query, 0x1234, question));
  const other = Buffer.from(answer);
  other.write("f", 13);
  assert.ok(!answers(other, 0x1234, question));
});

void test("DNS messages are parsed completely, however their TCP stream is cut", () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 8 }), fc.integer({ min: 1, max: 9 }), (messages, piece) => {
      const stream = Buffer.concat(messages.map((message) => frame(Buffer.from(message))));
      const frames = new Frames();
      const out: Buffer[] = [];
      for (let at = 0; at < stream.length; at += piece) out.push(...frames.take(stream.subarray(at, at + piece)));
      assert.deepEqual(
        out,
        messages.map((message) => Buffer.from(message)),
      );
    }),
  );
});

void test("resolv.conf is read as the C library reads it, and again when it changes", async () => {
  assert.deepEqual(
    parseResolvConf("# x\nsearch a.b\nnameserver 9.9.9.9\n nameserver fe80::1%eth0 \nnameserver x\nnameserver ::1\nnameserver 4.4.4.4\n").map(
      ({ address }) => address,
    ),
    ["9.9.9.9", "fe80::1%eth0", "::1"],
  );
  assert.deepEqual(parseResolvConf(""), [{ address: "127.0.0.1", port: 53 }]);
  const folder = mkdtempSync(join(tmpdir(), "svc-resolv-"));
  const path = join(folder, "resolv.conf");
  writeFileSync(path, "nameserver 192.0.2.1\n");
  const resolvers = openResolvers(undefined, path);
  assert.equal((await resolvers.current())[0]?.address, "192.0.2.1");
  writeFileSync(path, "nameserver 192.0.2.111\n");
  await until("the change is seen", async () => ((await resolvers.current())[0]?.address === "192.0.2.111" ? true : undefined));
  rmSync(folder, { recursive: true });
});

void test("an upstream is written as an address with or without a port, and nothing else", () => {
  assert.deepEqual(parseUpstream("9.9.9.9"), { address: "9.9.9.9", port: 53 });
  assert.deepEqual(parseUpstream("9.9.9.9:5353"), { address: "9.9.9.9", port: 5353 });
  assert.deepEqual(parseUpstream("2620:fe::fe"), { address: "2620:fe::fe", port: 53 });
  assert.deepEqual(parseUpstream("[2620:fe::fe]:5353"), { address: "2620:fe::fe", port: 5353 });
  for (const text of ["", "dns.example.com", "9.9.9.9:0", "9.9.9.9:65536", "9.9.9.9:", "[9.9.9.9", "9.9.9"])
    assert.throws(() => parseUpstream(text), /not a DNS server/, text);
});

void test("an upstream that refuses is skipped, and the next one answers", async () => {
  const upstream = createSocket("udp4");
  upstream.on("message", (message, from) => upstream.send(refusal(message, "NOTIMP", ""), from.port, from.address));
  await new Promise<void>((resolve) => upstream.bind(0, "127.0.0.1", () => resolve()));
  const dead = createSocket("udp4");
  await new Promise<void>((resolve) => dead.bind(0, "127.0.0.1", () => resolve()));
  const deadPort = dead.address().port;
  dead.close();
  const resolvers = openResolvers([`127.0.0.1:${deadPort}`, `127.0.0.1:${upstream.address().port}`]);
  const dns = await openDns({
    address: "127.0.0.1",
    port: 0,
    resolvers,
    rate: { perSecond: 100, burst: 100 },
    askerAt: () => ({
      refuses: () => undefined,
      hasRules: () => false,
      denied: () => {},
      dropped: () => {},
      servers: async () => undefined,
      resolved: async () => {},
    }),
  });
  const client = createSocket("udp4");
  const answer = new Promise<Buffer>((resolve) => client.once("message", resolve));
  client.send(query, dns.port, "127.0.0.1");
  assert.equal(((await answer)[3] ?? 0) & 15, 4);
  client.close();
  upstream.close();
  await dns.close();
});

void test("concurrent jobs share a call, and a bad one fails alone", async () => {
  const calls: number[][] = [];
  const batcher = new Batcher<number>(4, async (items) => {
    calls.push([...items]);
    if (items.includes(13)) throw new Error("unlucky");
  });
  const outcomes = await Promise.allSettled([1, 2, 13, 4, 5].map((item) => batcher.add(item)));
  assert.deepEqual(
    outcomes.map(({ status }) => status),
    ["fulfilled", "fulfilled", "rejected", "fulfilled", "fulfilled"],
  );
  assert.deepEqual(calls, [[1, 2, 13, 4], [1], [2], [13], [4], [5]]);
});
