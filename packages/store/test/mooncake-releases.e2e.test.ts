// The releases of Mooncake's client that our master serves: the newest and the pinned one, and the answer to older ones.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { wireError } from "../src/rpc/frame.ts";
import { ask } from "./frames.ts";
import { bytesOf, MIB, startHolder } from "./holder.ts";
import { startMaster } from "./master.ts";

void test("Mooncake's client 0.3.14 sets up, puts, gets, upserts and removes on our master", needs("mooncake-newest", "python3"), async () => {
  await using master = await startMaster();
  await using holder = await startHolder({ master: master.rpcPort, isNewest: true });
  assert.equal(await holder.put("k", "hello"), 0);
  assert.equal(await holder.get("k"), "hello");
  const config = { with_hard_pin: true, soft_pin_action: 1, preferred_segments: [await holder.name()], session_ids: ["s"] };
  assert.equal(await holder.put("long", "x".repeat(MIB), config), 0);
  assert.equal((await holder.get("long")).length, MIB);
  assert.equal(await holder.call("put_batch", ["b1", "b2"], ["one", "two"].map(bytesOf)), 0);
  assert.deepEqual(await holder.call("get_batch", ["b1", "b2", "b3"]), ["one", "two", ""].map(bytesOf));
  assert.deepEqual(await holder.call("batch_is_exist", ["k", "b1", "nothing"]), [1, 1, 0]);
  assert.equal(await holder.call("upsert", "k", bytesOf("of another size")), 0);
  assert.equal(await holder.get("k"), "of another size");
  // More keys than a length field of one byte can count.
  const many = Array.from({ length: 300 }, (_, at) => `many-${at}`);
  assert.equal(
    await holder.call(
      "put_batch",
      many,
      many.map((key) => bytesOf(key)),
    ),
    0,
  );
  assert.deepEqual(await holder.call("batch_is_exist", many), Array(300).fill(1));
  assert.equal(await holder.call("remove", "b1", true), 0);
  assert.equal(await holder.call("remove", "b1", true), -704);
  assert.equal(await holder.call("remove_by_regex", "^many-", true), 300);
  assert.equal(await holder.call("remove_all", true), 3);
  assert.equal(await holder.call("close"), 0);
  assert.doesNotMatch(master.log(), /type hash|expected/);
});

void test(
  "Mooncake's clients 0.3.13 and 0.3.14 read each other's objects through our master, also with zero-copy calls",
  needs("python-clients", "mooncake-newest", "python3"),
  async () => {
    await using master = await startMaster();
    await using older = await startHolder({ master: master.rpcPort });
    await using newest = await startHolder({ master: master.rpcPort, isNewest: true });
    const hashes: string[] = [];
    for (const holder of [older, newest]) {
      assert.equal(await holder.ask({ op: "allocate", buffer: "area", length: 2 * MIB }), 0);
      hashes.push(await holder.ask({ op: "fill", buffer: "area", length: MIB }));
    }
    const place = (at: number) => ({ buffer: "area", at: at * MIB });
    for (const [at, [writer, reader]] of [[older, newest] as const, [newest, older] as const].entries()) {
      const key = `key-${at}`;
      assert.deepEqual(await writer.call("batch_put_from", [key], [place(0)], [MIB], { config: { preferred_segment: await writer.name() } }), [0]);
      assert.deepEqual(await reader.call("batch_get_into", [key], [place(1)], [MIB]), [MIB]);
      assert.equal(await reader.ask({ op: "hash", buffer: "area", at: MIB, length: MIB }), hashes[at]);
    }
  },
);

/** The first call as each release's own client sent it: the set-up where that is refused already, otherwise the first put. */
const firstCalls = [
  [
    "0.3.12",
    "PutStart",
    "5dea206904fdfd04048989ff800c04fd04040b0b84800c800c84800c0b06800c8584800cff800cff00d7605c6b40ca4deb8d51b3a28b216b41016b3200000000000000010000000000000000000000000000000000000000000000000764656661756c74",
  ],
  [
    "0.3.11",
    "PutStart",
    "89ccdd5d04fdfd04048989ff800c04fd04040b0b84800c800c84800c0b06ffff00247c899300d346e7951955f4435102c2016b32000000000000000100000000000000000000000000000000000000000000",
  ],
  [
    "0.3.10",
    "PutStart",
    "f76bce6604fdfd04048989ff800c04fd040b0b84800c800c0bffff00d8c773a6d1d24133ab52c7f1a267285d016b320000000000000001000000000000000000000000",
  ],
  [
    "0.3.9 to 0.3.11",
    "MountSegment",
    "19cc2f0f04fdfdfd04048989ff800c0404800c800cfffd04048989ffff00e96d2be0ebce45f4b79058d5f37592f40f3132372e302e302e313a3133373333000000a3f77f000000000004000000000f3132372e302e302e313a3135373430037463706c89904d4b7a4fcda6abbfa407a7a777",
  ],
  [
    "0.3.8 or 0.3.9",
    "PutStart",
    "47586e7804fdfd04048989ff800c04fd040b84800c800c0bffff006c89904d4b7a4fcda6abbfa407a7a777016b3200000000000000010000000000000000000000",
  ],
  [
    "0.3.8 or earlier",
    "MountSegment",
    "dbb3fc7004fdfdfd04048989ff800c0404800cfffd04048989ffff00cfd38ebfb4b1436e98c7212bc3403d620f3132372e302e302e313a31323434350000008f817f000000000004000000000f3132372e302e302e313a3136383930e6a910501ce849beb51ab0dc0410b1da",
  ],
  ["0.3.7 or earlier", "PutStart", "0707b42e04fd800c8404fd040b800c0bffff00016b0132000000000000000100000000000000000000"],
] as const;

void test("a Mooncake client before 0.3.13, which Mooncake's 0.3.13 master refuses too, is refused with the names of both releases", async () => {
  await using master = await startMaster();
  for (const [release, name, hex] of firstCalls) {
    const { error, message } = await ask(master.rpcPort, name, Buffer.from(hex, "hex"));
    assert.equal(error, wireError.invalidArguments);
    assert.match(message, new RegExp(`^${name}: expected a client of Mooncake 0\\.3\\.13 and 0\\.3\\.14.*which Mooncake ${release} sends: upgrade the client`));
    await until("the log names the release", () => master.log().includes(`which Mooncake ${release} sends`) || undefined);
  }
  const unknown = await ask(master.rpcPort, "PutStart", Buffer.from("0102030400", "hex"));
  assert.match(unknown.message, /a release that this master does not know/);
});

void test("a body whose head has a wrong size is refused", async () => {
  await using master = await startMaster();
  // A body of ExistKey in 0.3.14's form, with a later field of three bytes: 0x22 bytes in total.
  const body = Buffer.from("d91ef97c052200fd800c800cff00016b0764656661756c74aabbcc", "hex");
  body.writeUInt16LE(body.length, 5);
  assert.equal((await ask(master.rpcPort, "ExistKey", body)).error, 0);
  body.writeUInt16LE(body.length + 1, 5);
  const { error, message } = await ask(master.rpcPort, "ExistKey", body);
  assert.equal(error, wireError.invalidArguments);
  assert.match(message, new RegExp(`ExistKey: expected a body of ${body.length + 1} bytes, as its head says, got ${body.length}`));
});
