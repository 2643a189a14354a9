// The display of builds that clients requested and never started.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Build } from "../src/template/build-record.ts";
import { listedBuilt, neverStarted, shownStatus } from "../src/template/show.ts";

const MINUTE_MS = 60_000;

void test("a build that its client never started is shown as failed after a quarter of an hour, and one that is built is not", () => {
  const createdAtMs = Date.now() - 16 * MINUTE_MS;
  const build: Build = {
    ...{ buildID: "b", templateID: "t", status: "waiting", tags: ["default"], cpuCount: undefined, memoryMB: 512, diskSizeMB: undefined, spec: undefined },
    ...{ step: undefined, reason: undefined, result: undefined, createdAtMs, updatedAtMs: createdAtMs, finishedAtMs: undefined },
  };
  const template = { templateID: "t", name: "t", public: false, createdAtMs, updatedAtMs: createdAtMs };
  const { buildStatus, cpuCount, memoryMB, diskSizeMB } = listedBuilt(template, [build], { count: 0, lastAtMs: undefined }, "1");
  assert.deepEqual([buildStatus, cpuCount, memoryMB, diskSizeMB], ["error", 2, 512, 4096]);
  assert.match(neverStarted(build)?.message ?? "", /did not start it within 15 minutes/);
  assert.equal(shownStatus(build, createdAtMs + 14 * MINUTE_MS), "waiting");
  const spec = {
    fromImage: undefined,
    fromTemplate: "base",
    needsCredentials: false,
    steps: [],
    startCmd: undefined,
    readyCmd: undefined,
    force: false,
    dockerfile: false,
  };
  assert.equal(shownStatus({ ...build, spec }), "waiting", "the build waits in the queue");
  assert.equal(shownStatus({ ...build, status: "ready" }), "ready");
});
