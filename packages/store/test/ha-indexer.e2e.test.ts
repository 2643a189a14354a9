// An indexer that knows both masters of a store: after each kill of the leader its answers match those of the leading master.
import assert from "node:assert/strict";
import { test } from "node:test";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { until } from "@svc/harness/until.ts";
import type { RpcClient } from "../src/rpc/client.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { type HaNode, startCluster } from "./ha-cluster.ts";
import { quietFlags } from "./ha-rounds.ts";
import { askReplay, BLOCK, endpointsIn, type Indexer, MODEL, startIndexer } from "./kv-listeners.ts";
import { startMaster } from "./master.ts";

const KILLS = 3;
const KEYS = 200;
/** The hashes are far apart, so that none is the block after another. */
const hashOf = (at: number) => 1_000_003n * BigInt(at + 1);

/** Changes keys of a small set repeatedly, at whichever master answers. */
async function change(nodes: readonly HaNode[], isOver: () => boolean): Promise<number> {
  let rpc: RpcClient | undefined;
  let done = 0;
  for (let at = 0; !isOver(); at++) {
    const key = String(hashOf((at * 7) % KEYS));
    try {
      rpc ??= await (nodes[at % nodes.length] as HaNode).rpc();
      const begun = await rpc.call("UpsertStart", clientID, key, 64n, plain, "");
      const ended = begun.ok ? await rpc.call("UpsertEnd", clientID, { key, checksum: 1n }, 4, "") : begun;
      const removed = at % 3 === 0 ? await rpc.call("Remove", String(hashOf((at * 11) % KEYS)), true, "") : undefined;
      if (!ended.ok && [-1010, -1011].includes(ended.code)) throw new Error("it does not lead");
      if (ended.ok || removed?.ok) done++;
    } catch {
      rpc?.close();
      rpc = undefined;
    }
  }
  rpc?.close();
  return done;
}

async function heldBy(leader: HaNode): Promise<Set<bigint>> {
  const { text } = await leader.ask("/get_all_keys");
  return new Set(
    text
      .split(/\s+/)
      .filter((key) => key !== "")
      .map((key) => BigInt(key)),
  );
}

async function knownTo(indexer: Indexer): Promise<Set<bigint>> {
  const known = new Set<bigint>();
  for (let at = 0; at < KEYS; at++) if (await indexer.holds(hashOf(at))) known.add(hashOf(at));
  return known;
}

void test("an indexer registered once with both masters continues after each kill of the leader, and its answers equal the new leader's table", async () => {
  const ports = await freePorts(4);
  const [live, replay] = [ports.slice(0, 2), ports.slice(2)].map((some) => some.map((port) => `tcp://127.0.0.1:${port}`)) as [string[], string[]];
  const of = (name: string, from: readonly string[]) => from[name === "ada" ? 0 : 1] as string;
  await using cluster = await startCluster({
    flags: quietFlags,
    flagsOf: (name) => [
      "--enable_kv_events=true",
      "--kv_events_backend_id=store",
      `--kv_events_bind_endpoint=${of(name, live)}`,
      `--kv_events_replay_endpoint=${of(name, replay)}`,
    ],
  });
  const first = await cluster.inSync(1);
  await using indexer = await startIndexer(live.join(";"), replay.join(";"));
  const mount = await first.rpc();
  assert.ok((await mount.call("MountSegment", segmentOf(1, 1n << 30n), clientID)).ok);
  mount.close();
  const sequenceOf = async (): Promise<number> => {
    const { services } = (await (await fetch(`${indexer.url}/services`)).json()) as { services: { freshness: { last_sequence: number | null } }[] };
    return services[0]?.freshness.last_sequence ?? -1;
  };
  let before = -1;
  for (let round = 0; round < KILLS; round++) {
    const leader = await cluster.inSync(1);
    let isOver = false;
    const load = change(cluster.nodes, () => isOver);
    const wanted = (await sequenceOf()) + 20;
    await until("the indexer hears of changes", async () => ((await sequenceOf()) >= wanted ? true : undefined), 5);
    await leader.kill();
    const next = await cluster.leader();
    assert.notEqual(next.name, leader.name);
    const further = (await sequenceOf()) + 20;
    await until("the indexer hears of changes at the next leader", async () => ((await sequenceOf()) >= further ? true : undefined), 5);
    isOver = true;
    assert.ok((await load) > 0);
    const held = await heldBy(next);
    assert.ok(held.size > 0);
    await until(
      "the indexer knows what the leader holds",
      async () => {
        const known = await knownTo(indexer);
        return held.size === known.size && [...held].every((hash) => known.has(hash)) ? true : undefined;
      },
      5,
    );
    const after = await sequenceOf();
    assert.ok(after > before, "batch numbers went back");
    before = after;
    const replayed = await askReplay(of(next.name, replay), 0);
    assert.ok(replayed.length > 0, "the new leader answers a replay");
    await leader.start();
  }
  const row = (await indexer.client.queryByHash(BigUint64Array.from([hashOf(0)]), { model: MODEL, blockSize: BLOCK }))["default"]?.["pool"];
  assert.ok(row !== undefined);
});

void test("several endpoints are refused for an engine, and where one of them is an address that publishers connect to", async () => {
  await using indexer = await startIndexer("tcp://127.0.0.1:1;tcp://127.0.0.1:2", "");
  const register = async (record: object) => {
    const base = { modelname: MODEL, instance_id: "other", block_size: BLOCK, dp_rank: 0 };
    const answer = await fetch(`${indexer.url}/register`, { method: "POST", body: JSON.stringify({ ...base, ...record }) });
    return { status: answer.status, text: await answer.text() };
  };
  const engine = await register({ type: "vLLM", endpoint: "tcp://127.0.0.1:1;tcp://127.0.0.1:2" });
  assert.equal(engine.status, 400);
  assert.match(engine.text, /endpoint: expected one endpoint, got 2: only a store has several masters/);
  const bound = await register({ type: "svc", endpoint: "tcp://*:1;tcp://127.0.0.1:2" });
  assert.equal(bound.status, 400);
  assert.match(bound.text, /expected the address of each master/);
  const fewer = await register({ type: "svc", endpoint: "tcp://127.0.0.1:1;tcp://127.0.0.1:2", replay_endpoint: "tcp://127.0.0.1:3" });
  assert.equal(fewer.status, 400);
  assert.match(fewer.text, /replay_endpoint: expected as many endpoints as endpoint has \(2\), got 1/);
});

void test("masters that are not of one store are named by the indexer they are registered with as one", async () => {
  const homes = [makeHome(), makeHome()] as const;
  try {
    const of = homes.map(endpointsIn);
    const start = ({ live, replay }: ReturnType<typeof endpointsIn>) =>
      startMaster({
        flags: ["--enable_kv_events=true", "--kv_events_backend_id=store", `--kv_events_bind_endpoint=${live}`, `--kv_events_replay_endpoint=${replay}`],
      });
    await using _one = await start(endpointsIn(homes[0]));
    await using _other = await start(endpointsIn(homes[1]));
    await using indexer = await startIndexer(of.map(({ live }) => live).join(";"), of.map(({ replay }) => replay).join(";"));
    const said = await until("the indexer says so", async () => {
      const { services } = (await (await fetch(`${indexer.url}/services`)).json()) as { services: { doctor: string[] }[] };
      return services[0]?.doctor.find((line) => line.includes("not masters of one store"));
    });
    for (const { replay } of of) assert.ok(said.includes(replay), said);
    assert.ok(
      of.some(({ replay }) => said.includes(`the last replay taken in was that of ${replay})`)),
      said,
    );
  } finally {
    for (const home of homes) removeHome(home);
  }
});
