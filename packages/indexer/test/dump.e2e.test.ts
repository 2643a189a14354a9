// A store's replay may be a dump of every key under numbers that live batches had before: it wins over them, wherever they stand.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import type { QueryAnswer } from "@svc/contract/indexer.ts";
import { REPLAY_END, sequenceFrame } from "@svc/contract/kv-event.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { Packr } from "msgpackr";
import { Publisher, Router } from "zeromq";
import { type Service, startIndexer, type TestIndexer } from "./indexer.ts";

const packr = new Packr({ useRecords: false });
const stored = (id: number, hash: number) => ({
  event_id: id,
  event_type: "stored",
  medium: "cpu",
  seq_hashes: [hash],
  base_block_idx: 0,
  tenant_id: "default",
});
const removed = (id: number, hash: number) => ({ event_id: id, event_type: "removed", medium: "cpu", seq_hashes: [hash], tenant_id: "default" });
type Batch = readonly [number, Buffer];
const batch = (sequence: number, ...events: object[]): Batch => [sequence, packr.pack([Date.now(), events, 0])];

/** A master whose replay is what the test says; one that says "dies" sends a part of its dump and no end. */
async function startMaster(answer: (from: number, asked: number) => Promise<readonly Batch[] | "dies">) {
  const [live = 0, replay = 0] = await freePorts(2);
  const [publisher, router] = [new Publisher({ linger: 0 }), new Router({ linger: 0 })];
  await publisher.bind(`tcp://127.0.0.1:${live}`);
  await router.bind(`tcp://127.0.0.1:${replay}`);
  const serving = (async () => {
    let asked = 0;
    for await (const [identity = Buffer.alloc(0), , start = Buffer.alloc(8)] of router) {
      const found = await answer(Number(start.readBigUInt64BE()), ++asked);
      for (const [number, payload] of found === "dies" ? dump.slice(0, 2) : found) await router.send([identity, "", sequenceFrame(BigInt(number)), payload]);
      if (found !== "dies") await router.send([identity, "", sequenceFrame(REPLAY_END), ""]);
    }
  })();
  return {
    registration: {
      endpoint: `tcp://127.0.0.1:${live}`,
      replay_endpoint: `tcp://127.0.0.1:${replay}`,
      type: "svc",
      modelname: "m",
      instance_id: "pool",
      block_size: 4,
      dp_rank: 0,
    },
    async publish(...batches: readonly Batch[]) {
      for (const [sequence, payload] of batches) await publisher.send(["", sequenceFrame(BigInt(sequence)), payload]);
    },
    async [Symbol.asyncDispose]() {
      publisher.close();
      router.close();
      await serving;
    },
  };
}

const known = [1, 2, 3, 4, 5, 6];
const early = [batch(0, stored(0, 1)), batch(1, stored(1, 9))];
/** Live batches after some that were missed, among those one that removed 9. */
const live = [batch(10, stored(20, 4)), batch(11, stored(21, 5)), batch(12, stored(22, 7)), batch(13, removed(23, 7)), batch(14, stored(24, 6))] as const;
/** All keys after batch 14, under the numbers right before the next batch's; their events likewise. */
const dump = [batch(12, stored(19, 1), stored(20, 2)), batch(13, stored(21, 3), stored(22, 4)), batch(14, stored(23, 5), stored(24, 6))];

async function seen(indexer: TestIndexer, what: string, holds: (freshness: Service["freshness"]) => boolean): Promise<Service> {
  const [service] = await indexer.until(
    what,
    () => indexer.services(),
    ([one]) => one !== undefined && holds(one.freshness),
  );
  return service as Service;
}

async function heldBy(indexer: TestIndexer): Promise<number[]> {
  const held: number[] = [];
  for (const hash of [1, 2, 3, 4, 5, 6, 7, 8, 9]) {
    const { body } = await indexer.post("/query_by_hash", { model: "m", block_size: 4, seq_hashes: [hash] });
    if (((body as QueryAnswer)["default"]?.["pool"]?.CPU ?? 0) > 0) held.push(hash);
  }
  return held;
}

for (const [title, before, late] of [
  ["that wait for it", 5, 5],
  ["of which some come only after it", 3, 3],
  ["of which all but the first come only after it", 1, 1],
] as const)
  void test(`a dump wins over live batches of its numbers ${title}`, async () => {
    await using indexer = await startIndexer(["--indexer.quiet_check_ms=0"]);
    await using master = await startMaster(async (from, asked) => {
      if (asked === 1) return early.slice(from);
      if (from >= 10) return live.slice(from - 10);
      await seen(indexer, "a live batch waits", ({ gap }) => gap);
      await master.publish(...live.slice(1, before));
      await delay(200);
      return dump;
    });
    await indexer.register(master.registration);
    await seen(indexer, "its first batches", ({ last_sequence, connected }) => last_sequence === 1 && connected);
    await master.publish(live[0]);
    await seen(indexer, "the dump's last batch", ({ last_sequence, complete }) => last_sequence === 14 && complete);
    await master.publish(...live.slice(late), batch(15, stored(25, 8), removed(26, 8)));
    const service = await seen(indexer, "the batch after the dump", ({ last_sequence, complete }) => last_sequence === 15 && complete);
    assert.deepEqual(await heldBy(indexer), known);
    assert.equal(service.batches["restarts"], 0);
    assert.equal(service.batches["gaps_lost"], 0);
  });

void test("a dump that ends before its end is not taken for all there is", async () => {
  await using indexer = await startIndexer(["--indexer.quiet_check_ms=0", "--indexer.replay_timeout_ms=1000"]);
  let isPartialKnown = false;
  await using master = await startMaster(async (from, asked) => {
    if (asked === 1) return "dies";
    // What it has of the dump is there, and nothing has come live that would leave a gap.
    const [service] = await indexer.services();
    isPartialKnown ||= service?.freshness.last_sequence === 13 && !service.freshness.complete;
    // A master asked from within its dump begins at the number that was asked for.
    return from < 12 ? dump : dump.map(([, payload], at) => [Math.min(from + at, 14), payload] as const);
  });
  await indexer.register(master.registration);
  await seen(indexer, "the whole dump", ({ last_sequence, complete }) => last_sequence === 14 && complete);
  assert.ok(isPartialKnown);
  assert.deepEqual(await heldBy(indexer), known);
});

void test("live batches that a replay has overtaken by thousands are no new publisher", async () => {
  await using indexer = await startIndexer(["--indexer.quiet_check_ms=0"]);
  const all = Array.from({ length: 4001 }, (_, at) => batch(at, stored(at, at)));
  await using master = await startMaster(async (from) => all.slice(from, 4000));
  await indexer.register({ ...master.registration, type: "vLLM" });
  await seen(indexer, "the replay", ({ last_sequence, connected }) => last_sequence === 3999 && connected);
  await master.publish(...all.slice(100));
  const service = await seen(indexer, "the batch after it", ({ last_sequence }) => last_sequence === 4000);
  assert.equal(service.freshness.complete, true);
  assert.deepEqual([service.batches["restarts"], service.batches["gaps_lost"]], [0, 0]);
});

void test("an engine that is replaced after a replay brought all of the former one is known by its first live batches", async () => {
  await using indexer = await startIndexer(["--indexer.quiet_check_ms=0"]);
  const [former, present] = [
    [1, 2, 3],
    [4, 5, 6, 7],
  ].map((hashes) => hashes.map((hash, at) => batch(at, stored(at, hash)))) as [Batch[], Batch[]];
  await using master = await startMaster(async (from, asked) => (asked === 1 ? former : present).slice(from));
  await indexer.register({ ...master.registration, type: "vLLM" });
  await seen(indexer, "the replay", ({ last_sequence, connected }) => last_sequence === 2 && connected);
  await master.publish(...present);
  const service = await seen(indexer, "all of the present one", ({ last_sequence, complete }) => last_sequence === 3 && complete);
  assert.equal(service.batches["restarts"], 1);
  assert.deepEqual(await heldBy(indexer), [4, 5, 6, 7]);
});
