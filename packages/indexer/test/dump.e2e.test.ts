// Tests a store's replay that is a dump of every key under numbers that live batches had before: it replaces them, wherever they are.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { cachedOf, seen, startIndexer } from "./indexer.ts";
import { type Batch, batch, removed, startScripted, stored } from "./scripted-publisher.ts";

const known = [1, 2, 3, 4, 5, 6];
const early = [batch(0, stored(0, 1)), batch(1, stored(1, 9))];
/** Live batches after some missed ones; one of the missed ones removed 9. */
const live = [batch(10, stored(20, 4)), batch(11, stored(21, 5)), batch(12, stored(22, 7)), batch(13, removed(23, 7)), batch(14, stored(24, 6))] as const;
/** A dump of all keys as of batch 14. Its batches and events have the numbers right before those of the next live batch. */
const dump = [batch(12, stored(19, 1), stored(20, 2)), batch(13, stored(21, 3), stored(22, 4)), batch(14, stored(23, 5), stored(24, 6))];

const CANDIDATES = [1, 2, 3, 4, 5, 6, 7, 8, 9];

for (const [title, before, late] of [
  ["that wait for it", 5, 5],
  ["of which some come only after it", 3, 3],
  ["of which all but the first come only after it", 1, 1],
] as const)
  void test(`a dump replaces live batches of its numbers ${title}`, async () => {
    await using indexer = await startIndexer(["--indexer.quiet_check_ms=0"]);
    let isLater = false;
    await using master = await startScripted(async (from) => {
      if (!isLater) return early.slice(from);
      if (from >= 10) return live.slice(from - 10);
      await seen(indexer, "a live batch waits", ({ gap }) => gap);
      await master.publish(...live.slice(1, before));
      await delay(200);
      return dump;
    });
    await indexer.register(master.registration);
    await seen(indexer, "its first batches", ({ last_sequence, complete, connected }) => last_sequence === 1 && complete && connected);
    isLater = true;
    await master.publish(live[0]);
    await seen(indexer, "the dump's last batch", ({ last_sequence, complete }) => last_sequence === 14 && complete);
    await master.publish(...live.slice(late), batch(15, stored(25, 8), removed(26, 8)));
    const service = await seen(indexer, "the batch after the dump", ({ last_sequence, complete }) => last_sequence === 15 && complete);
    assert.deepEqual(await cachedOf(indexer, CANDIDATES), known);
    assert.equal(service.batches["restarts"], 0);
    assert.equal(service.batches["gaps_lost"], 0);
  });

void test("a dump that ends before its end mark is not treated as complete", async () => {
  await using indexer = await startIndexer(["--indexer.quiet_check_ms=0", "--indexer.replay_timeout_ms=1000"]);
  let isPartialKnown = false;
  await using master = await startScripted(async (from, asked) => {
    if (asked === 1) return { breaksOff: dump.slice(0, 2) };
    // The indexer has taken the partial dump in, and no live batch has come that would leave a gap.
    const [service] = await indexer.services();
    isPartialKnown ||= service?.freshness.last_sequence === 13 && !service.freshness.complete;
    // A master begins its dump at the requested number if that is within the dump.
    return from < 12 ? dump : dump.map(([, payload], at) => [Math.min(from + at, 14), payload] as const);
  });
  await indexer.register(master.registration);
  await seen(indexer, "the whole dump", ({ last_sequence, complete }) => last_sequence === 14 && complete);
  assert.ok(isPartialKnown);
  assert.deepEqual(await cachedOf(indexer, CANDIDATES), known);
});

void test("a store whose replay has other batches than before is read again, and the blocks that it still has stay in answers meanwhile", async () => {
  await using indexer = await startIndexer(["--indexer.quiet_check_ms=100", "--indexer.replay_timeout_ms=3000"]);
  const first = [1, 2, 3].map((hash, at) => batch(at + 4, stored(at, hash)));
  const [kept, last] = [batch(7), 6];
  /** The numbers of events differ each time, as the time differs in a master's dump. */
  const dumped = (from: number, ids: number) => [1, 3, 4].map((hash, at) => batch(Math.min(Math.max(4, from) + at, last), stored(ids + at, hash)));
  const { promise: isLookedAt, resolve: proceed } = Promise.withResolvers<void>();
  let [isRestarted, wholes] = [false, 0];
  await using master = await startScripted(async (from, asked) => {
    if (!isRestarted) return first.filter(([number]) => number >= from);
    if (from > last) return [kept];
    if (from === 0) wholes++;
    // The first dump breaks off, the second one waits for the test.
    if (from === 0 && wholes === 1) return { breaksOff: dumped(from, asked * 10).slice(0, 1) };
    if (from === 0 && wholes === 2) await isLookedAt;
    return [...dumped(from, asked * 10), kept];
  });
  await indexer.register(master.registration);
  const service = await seen(indexer, "its first batches", ({ last_sequence, complete, connected }) => last_sequence === 6 && complete && connected);
  isRestarted = true;
  await indexer.until(
    "everything is requested a second time",
    async () => wholes,
    (count) => count === 2,
  );
  for (let at = 0; at < 5; at++) assert.deepEqual(await cachedOf(indexer, [1, 2, 3]), [1, 2, 3]);
  assert.equal((await indexer.services())[0]?.freshness.complete, false);
  proceed();
  const whole = await seen(indexer, "the whole of it", ({ last_sequence, complete }) => last_sequence === 7 && complete);
  assert.deepEqual(await cachedOf(indexer, CANDIDATES), [1, 3, 4]);
  assert.deepEqual([whole.batches["restarts"], whole.doctor], [service.batches["restarts"], []]);
  // Quiet checks find the batch that the master keeps.
  const read = wholes;
  await delay(500);
  assert.equal(wholes, read);
});

void test("live batches that a replay has overtaken by thousands are not treated as a new publisher's", async () => {
  await using indexer = await startIndexer(["--indexer.quiet_check_ms=0"]);
  const all = Array.from({ length: 4001 }, (_, at) => batch(at, stored(at, at)));
  let sent = 4000;
  await using master = await startScripted(async (from) => all.slice(from, sent));
  await indexer.register({ ...master.registration, type: "vLLM" });
  await seen(indexer, "the replay", ({ last_sequence, complete, connected }) => last_sequence === 3999 && complete && connected);
  // The first of these batches causes a replay, which contains the last ones as well; whichever arrives first, each counts once.
  sent = all.length;
  await master.publish(...all.slice(100));
  const service = await seen(indexer, "the batch after it", ({ last_sequence, complete }) => last_sequence === 4000 && complete);
  assert.deepEqual([service.batches["restarts"], service.batches["gaps_lost"]], [0, 0]);
});

void test("an engine that is replaced after a replay brought the former one completely is recognized by its first live batches", async () => {
  await using indexer = await startIndexer(["--indexer.quiet_check_ms=0"]);
  const [former, present] = [
    [1, 2, 3],
    [4, 5, 6, 7],
  ].map((hashes) => hashes.map((hash, at) => batch(at, stored(at, hash)))) as [Batch[], Batch[]];
  let isReplaced = false;
  await using master = await startScripted(async (from) => (isReplaced ? present : former).slice(from));
  await indexer.register({ ...master.registration, type: "vLLM" });
  await seen(indexer, "the replay", ({ last_sequence, complete, connected }) => last_sequence === 2 && complete && connected);
  isReplaced = true;
  await master.publish(...present);
  const service = await seen(indexer, "all of the present one", ({ last_sequence, complete }) => last_sequence === 3 && complete);
  assert.equal(service.batches["restarts"], 1);
  assert.deepEqual(await cachedOf(indexer, CANDIDATES), [4, 5, 6, 7]);
});
