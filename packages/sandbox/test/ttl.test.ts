// Time to live: the monotonic clock decides, and the wall clock is displayed.
import assert from "node:assert/strict";
import { test } from "node:test";
import { listed } from "../src/node/serve/list.ts";
import { overdue } from "../src/node/watch/watch.ts";
import { openWallTimes } from "../src/records/clock.ts";
import type { RunningRecord } from "../src/records/registry.ts";
import { claimWith, handle, recordWith } from "./record-fixture.ts";

const HOUR_MS = 3_600_000;

function record(deadlineMs: number): RunningRecord {
  return recordWith({ state: "running", handle, claim: claimWith({ deadlineMs }) });
}

void test("a sandbox is overdue at its deadline and not before, whatever the wall clock shows", () => {
  assert.deepEqual(overdue([record(1000)], 999), []);
  assert.deepEqual(
    overdue([record(1000)], 1000).map(({ sandboxID }) => sandboxID),
    ["i1"],
  );
});

void test("a step of the wall clock moves the displayed end, so that the remaining time stays right", () => {
  let wallMs = 1_000_000_000_000;
  const clock = { monotonicMs: () => 5_000, wallMs: () => wallMs };
  const wallTimes = openWallTimes(clock);
  const leftMs = () => Date.parse(listed(wallTimes, record(65_000)).endAt) - wallMs;
  assert.equal(leftMs(), 60_000);
  wallMs += HOUR_MS;
  assert.equal(leftMs(), 60_000);
  wallMs -= 24 * HOUR_MS;
  assert.equal(leftMs(), 60_000);
});

void test("the displayed end of a sandbox is the same at every call, wherever within a millisecond the two clocks are read", () => {
  let nowUs = 5_000_000;
  const clock = { monotonicMs: () => Math.floor(nowUs / 1000), wallMs: () => Math.floor((nowUs + 1_000_000_000_000_600) / 1000) };
  const wallTimes = openWallTimes(clock);
  const shown = new Set<string>();
  for (let reading = 0; reading < 1000; reading++, nowUs += 137) shown.add(listed(wallTimes, record(65_000)).endAt);
  assert.equal(shown.size, 1);
});

void test("a sandbox that is paused, pausing or resuming is not overdue", () => {
  const kept = { checkpointID: "c1", kind: "memory", runtime: "gvisor" } as const;
  const claim = claimWith({ deadlineMs: 0 });
  assert.deepEqual(
    overdue(
      [
        recordWith({ state: "paused", claim, kept, pausedAtWallMs: 1 }),
        recordWith({ state: "pausing", handle, claim, kept }),
        recordWith({ state: "resuming", claim, kept, pausedAtWallMs: 1 }),
      ],
      1000,
    ),
    [],
  );
});
