// Tests that complete rows are verified: after a restart, a reconnect, a snapshot or incomparable batches, a replay has confirmed them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { cachedOf, seen, startIndexer } from "./indexer.ts";
import { type Answer, batch, startScripted, stored } from "./scripted-publisher.ts";

const QUICK = ["--indexer.quiet_check_ms=0", "--indexer.replay_timeout_ms=300"];
const CHECKED = ["--indexer.quiet_check_ms=100", "--indexer.replay_timeout_ms=300"];
const CANDIDATES = [1, 2, 3, 4, 5, 6, 7];
const chain = (...hashes: readonly number[]) => hashes.map((hash, at) => batch(at, stored(at, hash)));

void test("an engine that is replaced after a long replay is not complete until a replay confirms it, although its first batches cannot be compared", async () => {
  await using indexer = await startIndexer(QUICK);
  const former = Array.from({ length: 3000 }, (_, at) => batch(at, stored(at, at === 2999 ? 1 : at + 100)));
  const present = chain(2, 3, 4);
  let answering = former;
  let answers = true;
  await using engine = await startScripted(async (from): Promise<Answer> => (answers ? answering.slice(from) : "silent"));
  await indexer.register({ ...engine.registration, type: "vLLM" });
  await seen(indexer, "the replay", ({ last_sequence, complete, connected }) => last_sequence === 2999 && complete && connected);
  answers = false;
  answering = present;
  await engine.publish(...present.slice(0, 2));
  await seen(indexer, "the incomplete row", ({ complete }) => !complete);
  answers = true;
  await engine.publish(...present.slice(2));
  const service = await seen(indexer, "all of the present one", ({ last_sequence, complete }) => last_sequence === 2 && complete);
  assert.equal(service.batches["restarts"], 1);
  assert.deepEqual(await cachedOf(indexer, CANDIDATES), [2, 3, 4]);
});

void test("a publisher is not taken for another one because thousands of batches came live while its replay was on its way", async () => {
  await using indexer = await startIndexer(QUICK);
  const all = Array.from({ length: 3001 }, (_, at) => batch(at, stored(at, at + 1)));
  let [hasGap, isHealed] = [false, false];
  await using engine = await startScripted(async (from) => {
    if (!hasGap) return all.slice(from, 100);
    if (isHealed) return all.slice(from);
    isHealed = true;
    // The missing batches come late, and with them all pending ones: the last batch known then is long forgotten.
    await engine.publish(...all.slice(100, 3000));
    await seen(indexer, "what came live", ({ last_sequence }) => (last_sequence ?? 0) >= 2999);
    return all.slice(from, 3000);
  });
  await indexer.register({ ...engine.registration, type: "vLLM" });
  await seen(indexer, "the first replay", ({ last_sequence, complete, connected }) => last_sequence === 99 && complete && connected);
  // A number beyond the expected one leaves a gap, and a replay is requested.
  hasGap = true;
  await engine.publish(all[3000] as ReturnType<typeof batch>);
  const service = await seen(indexer, "all of it", ({ last_sequence, complete }) => last_sequence === 3000 && complete);
  assert.deepEqual([service.batches["restarts"], service.batches["gaps_lost"]], [0, 0]);
  assert.deepEqual(await cachedOf(indexer, CANDIDATES), CANDIDATES);
});

void test("after a restart with failed replays the emptied row is not complete until a whole replay comes", async () => {
  await using indexer = await startIndexer(CHECKED);
  const [former, present] = [chain(1, 2), chain(3, 4, 5)];
  let asks = 0;
  let replaced = false;
  let answers = true;
  await using engine = await startScripted(async (from) => {
    if (!replaced) return former.slice(from);
    asks++;
    return asks === 1 || answers ? present.slice(from) : "silent";
  });
  await indexer.register({ ...engine.registration, type: "vLLM" });
  await seen(indexer, "the former one", ({ last_sequence, complete, connected }) => last_sequence === 1 && complete && connected);
  answers = false;
  replaced = true;
  // No batch comes live: a quiet check finds another batch 1, and then no replay is answered.
  const emptied = await seen(indexer, "the restart", ({ complete }) => !complete);
  assert.equal(emptied.batches["restarts"], 1);
  await indexer.until(
    "three failed replays",
    async () => asks,
    (count) => count >= 5,
  );
  await seen(indexer, "it is still not complete", ({ complete }) => !complete);
  assert.deepEqual(await cachedOf(indexer, CANDIDATES), []);
  answers = true;
  await seen(indexer, "a whole replay", ({ last_sequence, complete }) => last_sequence === 2 && complete);
  assert.deepEqual(await cachedOf(indexer, CANDIDATES), [3, 4, 5]);
});

void test("a replay that breaks off leaves the row incomplete, and so does a publisher that never answered", async () => {
  await using indexer = await startIndexer(QUICK);
  const all = chain(1, 2, 3, 4);
  let answers = false;
  await using engine = await startScripted(async (from, asked): Promise<Answer> => {
    if (asked <= 2) return { breaksOff: all.slice(0, 2) };
    return answers ? all.slice(from) : "silent";
  });
  await indexer.register({ ...engine.registration, type: "vLLM" });
  const service = await seen(indexer, "its part", ({ last_sequence, connected }) => last_sequence === 1 && connected);
  assert.equal(service.freshness.complete, false);
  answers = true;
  // The batch leaves a gap, which causes another request.
  await engine.publish(...all.slice(3));
  await seen(indexer, "the rest", ({ last_sequence, complete }) => last_sequence === 3 && complete);
  assert.deepEqual(await cachedOf(indexer, CANDIDATES), [1, 2, 3, 4]);

  await using silent = await startScripted(async () => "silent");
  await indexer.register({ ...silent.registration, type: "vLLM", instance_id: "silent" });
  const [, other] = await indexer.until(
    "connected",
    () => indexer.services(),
    ([, second]) => second?.freshness.connected === true,
  );
  assert.equal(other?.freshness.complete, false);
});

void test("an index loaded from a snapshot is not complete before its publisher's replay has its last batch", async () => {
  await using indexer = await startIndexer(CHECKED);
  const all = chain(1, 2, 3);
  let answers = true;
  await using engine = await startScripted(async (from) => (answers ? all.slice(from) : "silent"));
  await indexer.register({ ...engine.registration, type: "vLLM" });
  await seen(indexer, "all", ({ last_sequence, complete }) => last_sequence === 2 && complete);
  answers = false;
  await indexer.kill("SIGTERM");
  await indexer.start();
  const service = await seen(indexer, "the snapshot", ({ connected }) => connected);
  assert.deepEqual([service.freshness.source, service.freshness.complete], ["snapshot", false]);
  assert.deepEqual(await cachedOf(indexer, CANDIDATES), [1, 2, 3]);
  answers = true;
  await seen(indexer, "the verification", ({ complete }) => complete);
});
