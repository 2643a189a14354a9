// All parts together: the master, two of Mooncake's clients, an engine and an indexer, and the tiered answer to a router's query.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { openHasher } from "@svc/contract/index-client.ts";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { startHolder } from "./holder.ts";
import { BLOCK, endpointsIn, MODEL, startEngine, startIndexer } from "./kv-listeners.ts";
import { startMaster } from "./master.ts";

void test(
  "a router's query finds an engine's blocks on its GPU and the rest in the store, until they are removed or their holder dies",
  needs("python-clients", "python3"),
  async () => {
    const home = makeHome();
    const { live, replay } = endpointsIn(home);
    const flags = [
      "--enable_kv_events",
      `--kv_events_bind_endpoint=${live}`,
      `--kv_events_replay_endpoint=${replay}`,
      "--kv_events_backend_id=daemon",
      "--client_ttl=3s",
    ];
    await using master = await startMaster({ home, flags });
    await using indexer = await startIndexer(live, replay);
    const tokens = Uint32Array.from({ length: 4 * BLOCK }, (_, at) => at * 7 + 1);
    const trace = join(home, "trace.jsonl");
    writeFileSync(trace, `${JSON.stringify({ timestamp: 0, token_ids: [...tokens.subarray(0, 2 * BLOCK)] })}\n`);
    await using _engine = await startEngine(indexer.url, trace);
    await using first = await startHolder({ master: master.rpcPort });
    await using second = await startHolder({ master: master.rpcPort });
    const hashes = [...(await openHasher())(tokens, BLOCK)];
    const asked = async (what: string, longest: number, cpu: number) =>
      until(what, async () => {
        const rows = (await indexer.client.query(tokens, { model: MODEL, blockSize: BLOCK }))["default"];
        const [engine, pool] = [rows?.["engine"], rows?.["pool"]];
        return engine?.longest_matched === longest && engine.GPU === 2 * BLOCK && (pool?.CPU ?? 0) === cpu ? true : undefined;
      });
    await asked("the engine's own blocks", 2 * BLOCK, 0);
    assert.equal(await first.put(`0x${hashes[2]?.toString(16)}`, "third", { preferred_segment: await first.name() }), 0);
    assert.equal(await second.put(String(hashes[3]), "fourth", { preferred_segment: await second.name() }), 0);
    await asked("the engine's blocks and the store's behind them", 4 * BLOCK, 0);
    assert.equal(await second.put(String(hashes[0]), "first", { preferred_segment: await first.name() }), 0);
    await asked("the first block in the store as well", 4 * BLOCK, BLOCK);
    assert.equal(await first.call("remove", String(hashes[0]), true), 0);
    await asked("it is removed", 4 * BLOCK, 0);
    second.child.kill("SIGKILL");
    await asked("the holder of the last block died", 3 * BLOCK, 0);
    removeHome(home);
  },
);
