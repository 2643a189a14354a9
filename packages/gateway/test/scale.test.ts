// A short version of `svc bench scale` and docs/scale.md: the same simulation with 150 nodes, 3 gateways and 9,000 sandboxes, through the loss and return of a zone.
import assert from "node:assert/strict";
import { test } from "node:test";
import { simulateScale } from "./scale.ts";

const options = {
  nodes: 150,
  gateways: 3,
  running: 3_000,
  paused: 6_000,
  createsPerSecond: 20,
  resumesPerSecond: 10,
  maxSandboxes: 40,
  seconds: 60,
  zoneLostAtSecond: 15,
  zoneBackAtSecond: 50,
  seed: 1,
};

void test("a zone is lost under creates: the others take its load, gateways know every paused sandbox, and no node holds too many", async () => {
  const report = await simulateScale(options);
  const shown = JSON.stringify(report);
  assert.equal(report.wrongOwners, 0, shown);
  assert.equal(report.resumesMisrouted, 0, shown);
  assert.ok(report.mostOverLimit <= 0, shown);
  assert.ok(report.lostRunning > 900 && report.resumesOnLostNodes > 0 && report.resumed > 100, shown);
  // Only creates that were sent to a node of the zone before gateways knew of its loss have an unknown outcome.
  assert.deepEqual(
    Object.keys(report.failed).filter((name) => name !== "NODE_LOST"),
    [],
    shown,
  );
  assert.ok((report.failed["NODE_LOST"] ?? 0) < 60 && report.created > 1_800, shown);
  // Each gateway places by itself, and still the nodes are about equally full.
  const [most, least] = report.spreadBefore;
  assert.ok(most - least <= 16, shown);
});
