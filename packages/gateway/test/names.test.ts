// A snapshot's name means the same at every gateway, in whichever order the nodes reported its records.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { NameRecord } from "@svc/contract/cluster.ts";
import { openLog } from "@svc/kit/log.ts";
import type { Target } from "@svc/kit/proxy/target.ts";
import fc from "fast-check";
import { Member } from "../src/members/member.ts";
import { Names } from "../src/members/names.ts";

const log = openLog("gateway", "fatal");
const names = () => new Names({ apiKey: "k".repeat(40), log });
const member = new Member("http://127.0.0.1:1", {} as Target, "node-a");
const record = fc.record({
  name: fc.constantFrom("one:default", "two:v1"),
  atMs: fc.integer({ min: 0, max: 5 }),
  snapshotID: fc.constantFrom("", "snap1", "snap2", "snap3"),
  nodeID: fc.constantFrom("node-a", "node-b"),
});
const meant = (all: readonly NameRecord[]) => {
  const known = names();
  for (const each of all) known.take(member, [each], false, []);
  return ["one", "two:v1"].map((name) => known.of(name)).map((each) => each && [each.atMs, each.snapshotID]);
};

void test("a name means what its latest record says, in whichever order the records come", () => {
  fc.assert(
    fc.property(fc.array(record, { maxLength: 12 }), fc.infiniteStream(fc.nat()), (all, weights) => {
      const shuffled = all.map((each) => ({ each, weight: weights.next().value as number })).sort((a, b) => a.weight - b.weight);
      assert.deepEqual(meant(shuffled.map(({ each }) => each)), meant(all));
    }),
  );
});

void test("a snapshot that lost its name does not get it back when the newer snapshot is deleted", () => {
  const known = names();
  const take = (atMs: number, snapshotID: string) => known.take(member, [{ name: "same:default", atMs, snapshotID, nodeID: "node-a" }], false, []);
  assert.equal(known.bears("same", "snap1"), true, "nothing is known of it");
  take(1, "snap1");
  assert.deepEqual([known.bears("same", "snap1"), known.nameOf("snap1")], [true, "same:default"]);
  take(2, "snap2");
  assert.deepEqual([known.bears("same", "snap1"), known.bears("same:default", "snap2"), known.nameOf("snap1")], [false, true, undefined]);
  take(3, "");
  take(1, "snap1");
  assert.deepEqual([known.bears("same", "snap1"), known.bears("same", "snap2"), known.nameOf("snap2")], [false, false, undefined]);
});
