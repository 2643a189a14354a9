// A burst of creates through several gateways, which do not know each other's creates: equal nodes get equal shares.
import assert from "node:assert/strict";
import { test } from "node:test";
import { runBurst } from "./burst.ts";

const rules = { strategy: "spread" as const, memoryOvercommit: 16, memoryShare: 0.9 };

for (const gateways of [[300], [150, 150], [200, 100], [100, 100, 100]]) {
  void test(`300 creates at once by ${gateways.join(", ")} over three equal nodes are within ten per cent of even, however late the nodes report`, () => {
    for (const slowestTurnMs of [5, 100, 600]) {
      for (const withinMs of [20, 300, 2_000]) {
        for (let seed = 1; seed <= 20; seed++) {
          const held = runBurst({ seed, nodes: 3, gateways, withinMs, slowestTurnMs, rules });
          assert.equal(
            held.reduce((sum, each) => sum + each, 0),
            300,
          );
          for (const each of held) assert.ok(each >= 90 && each <= 110, JSON.stringify({ seed, withinMs, slowestTurnMs, held }));
        }
      }
    }
  });
}
