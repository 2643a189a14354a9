// Time to live: the monotonic clock decides, the wall clock is shown.
import assert from "node:assert/strict";
import { test } from "node:test";
import { listed } from "../src/node/list.ts";
import type { Node } from "../src/node/node.ts";
import type { RunningRecord } from "../src/node/registry.ts";
import { overdue } from "../src/node/watch.ts";

const HOUR_MS = 3_600_000;

function record(deadlineMs: number): RunningRecord {
  return {
    sandboxID: "i1",
    bootID: "b",
    directory: "/d",
    templateID: "base",
    envdVersion: "0.6.13",
    limits: { cpuCount: 1, memoryMB: 64, diskSizeMB: 64, pids: 64 },
    status: {
      state: "running",
      handle: { runtime: "runc", runtimeID: "i1", directory: "/d", pid: 1, pidStartTicks: 1, endpoint: { kind: "tcp", host: "10.0.0.2" }, network: undefined },
      claim: {
        startedAtWallMs: 0,
        deadlineMs,
        secure: true,
        trafficPrivate: false,
        allowInternet: true,
        maskRequestHost: undefined,
        metadata: {},
        alias: "base",
      },
    },
  };
}

void test("a sandbox is overdue at its deadline and not before, whatever the wall clock says", () => {
  assert.deepEqual(overdue([record(1000)], 999), []);
  assert.deepEqual(overdue([record(1000)], 1000), ["i1"]);
});

void test("a step of the wall clock moves the shown end along, so that the time left stays true", () => {
  let wallMs = 1_000_000_000_000;
  const node = { clock: { monotonicMs: () => 5_000, wallMs: () => wallMs } } as Node;
  const leftMs = () => Date.parse(listed(node, record(65_000)).endAt) - wallMs;
  assert.equal(leftMs(), 60_000);
  wallMs += HOUR_MS;
  assert.equal(leftMs(), 60_000);
  wallMs -= 24 * HOUR_MS;
  assert.equal(leftMs(), 60_000);
});
