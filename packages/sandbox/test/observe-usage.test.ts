// A sandbox's usage: percentages between samples, correct over pause and resume; an hour of them; fresh on request.
import assert from "node:assert/strict";
import { test } from "node:test";
import { SAMPLES_KEPT, SampleRing } from "@svc/sandbox/observe/sample-ring.ts";
import { type Measured, openUsageLog } from "@svc/sandbox/observe/usage.ts";
import type { RuntimeHandle } from "@svc/sandbox/runtime/runtime.ts";

const MIB = 1024 * 1024;
const limits = { cpuCount: 2, memoryMB: 512, diskSizeMB: 1024, pids: 100 };

function handle(pid: number): RuntimeHandle {
  return {
    runtime: "gvisor",
    runtimeID: "i1",
    directory: "/nowhere",
    pid,
    pidStartTicks: pid,
    endpoint: { kind: "tcp", host: "127.0.0.1" },
    network: undefined,
  };
}

/** A sandbox whose usage the test sets, on the test's own clock. */
function world() {
  const state = { now: 1_764_000_000_000, cpuNs: 0, pid: 1 as number | undefined, memoryBytes: 100 * MIB, cpuSeconds: 0, looks: 0 };
  const measured = (): Measured | undefined => (state.pid === undefined ? undefined : { sandboxID: "i1", handle: handle(state.pid), limits });
  const log = openUsageLog({
    running: () => [measured()].filter((each) => each !== undefined),
    find: (sandboxID) => (sandboxID === "i1" ? measured() : undefined),
    isKept: () => true,
    measure: async () => {
      state.looks++;
      return { cpuNs: state.cpuNs, memoryBytes: state.memoryBytes, cacheBytes: MIB, memoryLimitBytes: 0, pids: 1, diskBytes: 7 * MIB };
    },
    onCpu: (seconds) => void (state.cpuSeconds += seconds),
    wallMs: () => state.now,
    monotonicMs: () => state.now,
  });
  return { state, log };
}

/** Advances the clock in steps of the sampler, with this share of one CPU in use. */
async function pass(
  context: { mock: { timers: { tick(ms: number): void } } },
  state: { now: number; cpuNs: number },
  ms: number,
  share: number,
): Promise<void> {
  for (let passed = 0; passed < ms; passed += 250) {
    state.now += 250;
    state.cpuNs += 250 * 1e6 * share;
    context.mock.timers.tick(250);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

void test("100 is one full CPU, even when pause and resume reset the counters", async (context) => {
  context.mock.timers.enable({ apis: ["setInterval"] });
  const { state, log } = world();
  state.cpuNs = 50e9; // CPU time used before the first sample is in no sample.
  log.start();
  await pass(context, state, 20_000, 1.5);
  state.pid = undefined;
  await pass(context, state, 60_000, 0);
  Object.assign(state, { pid: 2, cpuNs: 3e9 });
  await pass(context, state, 20_000, 0.25);
  const samples = await log.read("i1");
  const shares = samples.map(({ cpuUsedPct }) => cpuUsedPct);
  assert.deepEqual([...new Set(shares)], [150, 25]);
  assert.ok(shares.length >= 7 && shares.length <= 10, String(shares));
  assert.ok(Math.abs(state.cpuSeconds - (20 * 1.5 + 20 * 0.25)) < 8, String(state.cpuSeconds));
  assert.deepEqual(samples[0], {
    ...samples[0],
    cpuCount: 2,
    memTotal: 512 * MIB,
    memUsed: 100 * MIB,
    memCache: MIB,
    diskUsed: 7 * MIB,
    diskTotal: 1024 * MIB,
  });
  log.close();
});

void test("an hour of samples is kept, regardless of reads in between, and bounds select among them", async (context) => {
  context.mock.timers.enable({ apis: ["setInterval"] });
  const { state, log } = world();
  log.start();
  for (let minute = 0; minute < 70; minute++) {
    await pass(context, state, 60_000, 0.5);
    await log.read("i1");
  }
  const samples = await log.read("i1");
  assert.ok(samples.length >= SAMPLES_KEPT && samples.length <= SAMPLES_KEPT + 1, String(samples.length));
  const times = samples.map(({ timestampUnix }) => timestampUnix);
  assert.deepEqual(
    [...times].sort((a, b) => a - b),
    times,
  );
  assert.ok((times.at(-1) ?? 0) - (times[0] ?? 0) >= 3_500);
  const [startSeconds = 0, endSeconds = 0] = [times[10], times[20]];
  assert.deepEqual(
    (await log.read("i1", { startSeconds, endSeconds })).map(({ timestampUnix }) => timestampUnix),
    times.slice(10, 21),
  );
  log.close();
});

void test("a sandbox just created has a sample immediately, and concurrent readers share one measurement", async () => {
  let looks = 0;
  const measured = { sandboxID: "i1", handle: handle(1), limits };
  const log = openUsageLog({
    running: () => [measured],
    find: () => measured,
    isKept: () => true,
    async measure() {
      looks++;
      // The counter shows half a CPU, since this process started.
      return { cpuNs: performance.now() * 1e6 * 0.5, memoryBytes: MIB, memoryLimitBytes: 0, pids: 1, diskBytes: 0 };
    },
  });
  const answers = await Promise.all(Array.from({ length: 50 }, () => log.read("i1")));
  for (const samples of answers) assert.equal(samples.length, 1);
  const share = answers[0]?.[0]?.cpuUsedPct ?? 0;
  assert.ok(share > 25 && share < 75, `${share} %`);
  assert.equal(looks, 2);
  log.close();
});

void test("a paused sandbox shows its last samples", async (context) => {
  context.mock.timers.enable({ apis: ["setInterval"] });
  const { state, log } = world();
  log.start();
  await pass(context, state, 600_000, 0.1);
  state.pid = undefined;
  await pass(context, state, 7_200_000, 0);
  const samples = await log.read("i1");
  assert.ok(samples.length > 0 && samples.length <= 24);
  assert.deepEqual(await log.read("i2"), []);
  log.close();
});

void test("the ring returns its samples, oldest first, through growth, overflow and shrinking", () => {
  const ring = new SampleRing();
  for (let number = 1; number <= 2_000; number++) {
    ring.push({ atMs: number, cpuPct: number / 2, memoryBytes: number, cacheBytes: 0, diskBytes: 0 });
    const times = [...ring.samples()].map(({ atMs }) => atMs);
    const most = Math.min(number, SAMPLES_KEPT);
    assert.ok(times.length === most && times[0] === number - most + 1 && times.at(-1) === number, String(number));
    assert.equal(ring.last?.atMs, number);
  }
  ring.shrink();
  assert.deepEqual(
    [...ring.samples()].map(({ atMs }) => atMs),
    Array.from({ length: 24 }, (_, index) => 1_977 + index),
  );
});
