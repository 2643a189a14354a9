// The bound of a node's silence, in virtual time.
import { equal, ok } from "node:assert/strict";
import { test } from "node:test";
import { SilenceBound } from "../src/members/silence-bound.ts";

const LEAST_MS = 700;
const BEAT_MS = 200;

/** Lets messages come with these gaps; returns how often the silence before one was longer than the bound. */
function alarms(bound: SilenceBound, gapsMs: Iterable<number>, from = 0): { count: number; nowMs: number } {
  let [nowMs, count] = [from, 0];
  bound.heard(nowMs);
  for (const gapMs of gapsMs) {
    if (gapMs > bound.ms) count++;
    nowMs += gapMs;
    bound.heard(nowMs);
  }
  return { count, nowMs };
}

/** Gaps of a machine whose processes wait for a processor: most are short, one in fifty is up to 2.5 s late. */
function* busy(messages: number): Generator<number> {
  let state = 11;
  const random = () => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return state / 2 ** 32;
  };
  for (let at = 0; at < messages; at++) yield BEAT_MS + random() * 100 + (random() < 0.02 ? random() * 2_500 : 0);
}

test("a quiet machine keeps the bound of the setting", () => {
  const bound = new SilenceBound(LEAST_MS);
  equal(alarms(bound, Array<number>(1_000).fill(BEAT_MS)).count, 0);
  equal(bound.ms, LEAST_MS);
});

test("an hour of late messages on a busy machine gives a few false alarms, and with a fixed bound a hundred", () => {
  const gaps = [...busy(15_000)];
  ok(alarms(new SilenceBound(LEAST_MS), gaps).count <= 4);
  ok(gaps.filter((gap) => gap > LEAST_MS).length > 100);
});

test("the bound shrinks again when the machine is quiet", () => {
  const bound = new SilenceBound(LEAST_MS);
  const { nowMs } = alarms(bound, [BEAT_MS, 1_600, 1_500, 1_400, BEAT_MS]);
  equal(bound.ms, 4_200);
  alarms(bound, Array<number>(1_600).fill(BEAT_MS), nowMs);
  equal(bound.ms, LEAST_MS);
});

test("a machine that was suspended once or twice keeps the bound of the setting, and no delays raise it beyond ten times that", () => {
  const bound = new SilenceBound(LEAST_MS);
  const { nowMs } = alarms(bound, [BEAT_MS, 60_000, 60_000]);
  equal(bound.ms, LEAST_MS);
  alarms(bound, [20_000, BEAT_MS], nowMs);
  equal(bound.ms, 7_000);
});

test("neither a restart of the node nor a delay of the gateway itself raises the bound", () => {
  const bound = new SilenceBound(LEAST_MS);
  bound.heard(0);
  bound.interrupted();
  bound.heard(30_000);
  for (const nowMs of [35_000, 40_000, 45_000]) bound.heard(nowMs, 4_900);
  equal(bound.ms, LEAST_MS);
});
