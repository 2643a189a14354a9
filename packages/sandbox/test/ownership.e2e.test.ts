// Ownership of a sandbox that can move, over a real etcd: whatever nodes do concurrently, only one of them may run it.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { clusterKeys } from "@svc/contract/cluster-records.ts";
import { startEtcd, type TestEtcd } from "@svc/harness/etcd.ts";
import { needs } from "@svc/harness/needs.ts";
import { type Etcd, openEtcd } from "@svc/kit/etcd/client.ts";
import { openOwnership } from "../src/cluster/ownership.ts";

const ROUNDS = 60;
const ID = "i0123456789abcdefghi";
const listed = {
  sandboxID: ID,
  templateID: "base",
  clientID: "svc",
  startedAt: "2026-01-01T00:00:00.000Z",
  endAt: "2026-01-01T00:10:00.000Z",
  cpuCount: 2,
  memoryMB: 512,
  diskSizeMB: 1024,
  state: "paused",
  envdVersion: "1",
  forkDepth: 0,
} as const;
const manifest = (moment: number) => `sandboxes/${ID}/c${String(moment).padStart(24, "0")}`;

void describe("ownership of sandboxes that move", needs("etcd"), () => {
  let server: TestEtcd;
  let etcd: Etcd;
  before(async () => {
    server = await startEtcd();
    etcd = openEtcd({ endpoints: server.endpoints, attemptMs: 10_000, callMs: 60_000 });
  });
  after(async () => {
    await etcd?.close();
    await server?.[Symbol.asyncDispose]();
  });

  const keys = clusterKeys("ownership");
  let serves = true;
  const node = async (nodeID: string, state: "serving" | "stopped" | "dead" = "serving") => {
    const record = { version: 1, nodeID, slot: 1, generation: 1, state, isDraining: false, url: "http://127.0.0.1:1", changedAtMs: 0 };
    await etcd.put(keys.node(nodeID), JSON.stringify(record));
    const live = { version: 1, nodeID, generation: 1, home: nodeID, fingerprints: { apiKey: "", seed: "" }, url: record.url };
    await etcd.put(keys.live(nodeID), JSON.stringify(live));
    return openOwnership(etcd, keys, nodeID, async () => serves);
  };

  void test("a node takes a sandbox only if it is offered, or if its node does not serve", async () => {
    const [a, b] = [await node("node-a"), await node("node-b")];
    await assert.rejects(b.takeable(ID), { name: "SANDBOX_NOT_FOUND" });
    await a.share(ID, manifest(1), listed);
    await assert.rejects(b.takeable(ID), { name: "NODE_LOST", message: /node-a owns .* answers, and was neither stopped nor declared dead/ });
    // Its process was killed, so it does not answer; later its lease expires.
    serves = false;
    assert.equal(await b.takeable(ID), manifest(1));
    serves = true;
    await etcd.delete(keys.live("node-a"));
    assert.equal(await b.takeable(ID), manifest(1));
    await node("node-a");
    await assert.rejects(b.takeable(ID), { name: "NODE_LOST" });
    await a.offer(ID);
    assert.equal(await b.takeable(ID), manifest(1));
    await b.take(ID, manifest(1));
    await assert.rejects(a.keep(ID), { name: "SANDBOX_MOVED", message: /moved to node node-b/ });
    await b.keep(ID);
    await assert.rejects(a.takeable(ID), { name: "SANDBOX_NOT_FOUND" });
    await b.share(ID, manifest(2), listed);
    await node("node-b", "dead");
    assert.equal(await a.takeable(ID), manifest(2));
    // It ran there again before its node was declared dead, and was paused, so its checkpoint is newer than the fetched one.
    await assert.rejects(a.take(ID, manifest(1)), { name: "SANDBOX_CHANGING_STATE" });
    await a.take(ID, manifest(2));
    await assert.rejects(b.keep(ID), { name: "SANDBOX_MOVED" });
    // The previous node still has it on its disk: until that node was back, the record shows that another node took it.
    await a.forget(ID);
    assert.deepEqual([(await (await node("node-b", "dead")).load()).get(ID)?.nodeID, a.mine.has(ID)], ["node-a", false]);
    await assert.rejects(b.takeable(ID), { name: "SANDBOX_NOT_FOUND" });
    await a.gaveUp(ID);
    await b.gaveUp(ID);
    assert.equal(await etcd.get(keys.sandbox(ID)), undefined);
  });

  void test("a restarted node knows what it owns, and leaves records of a later version unchanged", async () => {
    const a = await node("node-a");
    await a.share(ID, manifest(3), listed);
    await etcd.put(keys.sandbox("ilater"), JSON.stringify({ version: 2 }));
    const again = openOwnership(etcd, keys, "node-a");
    assert.deepEqual([...(await again.load()).keys()], [ID]);
    assert.deepEqual([...again.mine], [ID]);
    await assert.rejects(again.keep("ilater"), { name: "ETCD_REFUSED", message: /upgrade this node/ });
    await etcd.delete(keys.sandbox("ilater"));
    await again.forget(ID);
  });

  void test("of nodes that resume and take a sandbox concurrently, only one may run it", async () => {
    const nodes = [await node("node-a"), await node("node-b"), await node("node-c")];
    let owner = nodes[0] ?? assert.fail();
    for (let round = 0; round < ROUNDS; round++) {
      await owner.share(ID, manifest(round), listed);
      await owner.offer(ID);
      const tried = await Promise.all(
        nodes.map((each) => {
          const run = each === owner ? each.keep(ID) : each.take(ID, manifest(round)).then(() => each.keep(ID));
          return run.then(
            () => each,
            () => undefined,
          );
        }),
      );
      const running = tried.filter((each) => each !== undefined);
      assert.equal(running.length, 1, `round ${round}: ${running.map(({ nodeID }) => nodeID).join()}`);
      owner = running[0] ?? assert.fail();
      assert.equal(await owner.ownerOf(ID), owner.nodeID);
    }
    await owner.forget(ID);
  });
});
