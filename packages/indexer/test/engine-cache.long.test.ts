// Runs the comparison of engine-cache.test.ts over 100,000 requests.
import assert from "node:assert/strict";
import { test } from "node:test";
import { compareWithEngine, needsEngine } from "./engine-cache.ts";
import { engineModels } from "./engine-models.ts";

void test("over 100,000 requests under eviction every answer equals what vLLM finds cached", { ...needsEngine(), timeout: 3_600_000 }, async () => {
  const each = Math.ceil(100_000 / engineModels.length);
  for (const { name, groups } of engineModels) {
    const says: string[] = [];
    await compareWithEngine({ seed: 11, requests: each, running: 6, reset: 0.001, groups: [...groups], blocks: 120 + 100 * groups.length }, [], (text) =>
      says.push(text),
    );
    assert.deepEqual(says.slice(0, 5), [], name);
  }
});
