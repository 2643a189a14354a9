// Compares the index with vLLM's own KVCacheManager and BlockPool under eviction: a query answers what the engine finds cached.
import assert from "node:assert/strict";
import { test } from "node:test";
import { compareWithEngine, type EngineGroup, needsEngine } from "./engine-cache.ts";
import { engineModels } from "./engine-models.ts";

const given = { ...needsEngine(), timeout: 600_000 };
const REQUESTS = 1500;

async function mismatches(groups: readonly EngineGroup[], requests: number) {
  const says: string[] = [];
  const plan = { seed: 7, requests, running: 6, reset: 0.002, groups: [...groups], blocks: 120 + 100 * groups.length };
  const compared = await compareWithEngine(plan, [], (text) => says.push(text));
  return { compared, says: says.slice(0, 5) };
}

for (const { name, groups } of engineModels)
  void test(`a model with ${name} is answered as deep as vLLM itself would serve it, before each of ${REQUESTS} requests`, given, async () => {
    const { compared, says } = await mismatches(groups, REQUESTS);
    assert.deepEqual(says, []);
    assert.ok(compared.hits > REQUESTS / 2, `${compared.hits} hits`);
  });

void test(
  "a group of chunked local attention, whose events do not give the size of a chunk, never makes an answer larger than the engine's cache",
  given,
  async () => {
    const { compared } = await mismatches([{ kind: "chunked", window: 128 }, { kind: "full" }], REQUESTS);
    assert.equal(compared.above, 0);
    assert.ok(compared.certain > compared.engine / 4, `${compared.certain} of ${compared.engine} tokens`);
  },
);

for (const { name, groups } of engineModels.filter(({ name }) => /^(one group of full|a sliding window and)/.test(name)))
  void test(
    `after lost batches a model with ${name} never has more certain tokens than in vLLM, and fewer only as far as the loss reaches`,
    given,
    async () => {
      const blocks = 120 + 100 * groups.length;
      const plan = { seed: 3, requests: 2000, running: 6, groups: [...groups], blocks };
      const one = await compareWithEngine(plan, [{ at: 300, batches: 1 }]);
      assert.equal(one.above, 0);
      // Without uncertain blocks, only new conversations would be found again after a loss.
      assert.ok(one.certain > one.engine * (groups.length === 1 ? 0.7 : 0.35), `${one.certain} of ${one.engine} tokens`);
      assert.ok(one.reach > one.certain, `${one.reach} with uncertain tokens, ${one.certain} without`);
      const many = await compareWithEngine(
        plan,
        Array.from({ length: 40 }, (_, i) => ({ at: 100 + 45 * i, batches: 1 + (i % 4) })),
      );
      assert.equal(many.above, 0);
      assert.ok(many.lost >= 90 && many.certain > 0);
    },
  );
