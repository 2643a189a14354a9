// Clients that follow the leader: ours and Mooncake's by etcd, terminal commands, and subscribers of KV events.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { needs } from "@svc/harness/needs.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { until } from "@svc/harness/until.ts";
import { StoreClient } from "../src/client/store-client.ts";
import { type Cluster, type HaNode, startCluster } from "./ha-cluster.ts";
import { Holder } from "./holder.ts";
import { askReplay, subscribe } from "./kv-listeners.ts";

const MIB = 1 << 20;
const CLI = fileURLToPath(new URL("../src/cli/main.ts", import.meta.url));
const needsWheel = needs("python-clients", "python3");

const openAt = (cluster: Cluster, segmentBytes: number) =>
  StoreClient.open({ master: cluster.address, clusterID: cluster.clusterID, segmentBytes, localBufferBytes: 4 * MIB, timeoutMs: 30_000 });

void test("a client with etcd as its master's address puts and gets through the leader's kill and a hand-over, with promises and synchronously", async () => {
  await using cluster = await startCluster();
  const first = await cluster.inSync(1);
  await using holder = await openAt(cluster, 16 * MIB);
  await using client = await openAt(cluster, 0);
  const stored: string[] = [];
  let isOver = false;
  const load = (async () => {
    for (let at = 0; !isOver; at++) {
      assert.equal(await client.put(`key-${at}`, Buffer.from(`value-${at}`)), true, `key-${at}`);
      stored.push(`key-${at}`);
    }
  })();
  const more = async (count: number) => {
    const wanted = stored.length + count;
    await until(`${count} more puts`, () => (stored.length >= wanted ? true : undefined), 5);
  };
  await more(50);
  await first.kill();
  await more(50);
  await first.start();
  const second = await cluster.inSync(1);
  assert.equal((await second.ask(`/api/v1/lead?to=${first.name}`, { method: "POST" })).status, 200);
  await more(50);
  isOver = true;
  await load;
  for (const key of stored) assert.equal((await client.get(key))?.toString(), key.replace("key", "value"), key);
  // While the thread is blocked, the client learns nothing of a takeover, so it tries the candidates in order.
  const last = await cluster.inSync(1);
  assert.equal(client.putSync("held-1", Buffer.from("1")), true);
  await last.kill();
  assert.equal(client.putSync("held-2", Buffer.from("2")), true);
  assert.equal(client.getSync("held-1")?.toString(), "1");
  assert.ok(await until("the holder is known", async () => (await holder.health()) || undefined));
});

void test("after the leader's kill a client gives up at once what the former leader had leased it, and its first put is stored", async () => {
  await using cluster = await startCluster();
  const first = await cluster.inSync(1);
  await using _holder = await openAt(cluster, 16 * MIB);
  await using client = await openAt(cluster, 0);
  // Frequent puts of one size make the client lease more and more ahead.
  for (let at = 0; at < 300; at++) assert.equal(await client.put(`before-${at}`, Buffer.from("some bytes")), true);
  await first.kill();
  const second = await cluster.leader();
  assert.equal(await client.put("after", Buffer.from("some bytes")), true);
  const metrics = (await second.ask("/metrics")).text;
  const refused = Number(/svc_store_rpc_failed_items_total\{operation="CommitPuts"\} (\d+)/.exec(metrics)?.[1] ?? 0);
  assert.ok(refused <= 5, `${refused} commits of what the former leader had leased were tried one after the other`);
});

void test("Mooncake's client finds the leader in etcd, and continues with the next one", needsWheel, async () => {
  await using cluster = await startCluster();
  const first = await cluster.inSync(1);
  await using mooncake = new Holder({ MC_STORE_CLUSTER_ID: cluster.clusterID });
  await mooncake.ask();
  assert.equal(await mooncake.call("setup", "127.0.0.1", "P2PHANDSHAKE", 16 * MIB, 16 * MIB, "tcp", "", cluster.address), 0);
  assert.equal(await mooncake.put("one", "1"), 0);
  assert.equal(await mooncake.get("one"), "1");
  await first.kill();
  await until("it puts at the next leader", async () => ((await mooncake.put("two", "2").catch(() => -1)) === 0 ? true : undefined));
  assert.equal(await until("it reads what it put before", async () => (await mooncake.get("one")) || undefined), "1");
  assert.equal(await mooncake.get("two"), "2");
});

async function run(...words: string[]): Promise<{ code: number | null; out: string; err: string }> {
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", CLI, ...words], { stdio: ["ignore", "pipe", "pipe"] });
  let [out, err] = ["", ""];
  child.stdout.on("data", (chunk: Buffer) => void (out += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => void (err += chunk.toString()));
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  return { code, out, err };
}

void test("svc store leader, standbys and lead report the leader and hand leadership over, whichever master is asked", async () => {
  await using cluster = await startCluster();
  const leader = await cluster.inSync(1);
  const standby = cluster.nodes.find((node) => node !== leader) as HaNode;
  const said = await run("leader", "--url", standby.url);
  assert.match(said.out, new RegExp(`^${leader.name} leads \\(serving\\) at 127\\.0\\.0\\.1:${leader.rpcPort}, epoch 1, in sync: ${standby.name}`));
  const rows = JSON.parse((await run("standbys", "--master", cluster.address, "--cluster", cluster.clusterID, "--output", "json")).out) as {
    name: string;
    in_sync: boolean;
  }[];
  assert.deepEqual(
    rows.map(({ name, in_sync }) => ({ name, in_sync })),
    [{ name: standby.name, in_sync: true }],
  );
  const wrong = await run("lead", "--to", "nobody", "--url", leader.url);
  assert.equal(wrong.code, 1);
  assert.match(wrong.err, /there is no standby nobody; in sync: /);
  const handed = await run("lead", "--to", standby.name, "--url", standby.url);
  assert.equal(handed.code, 0, handed.err);
  assert.equal((await standby.ha()).role, "leader");
  assert.match((await run("lead", "--to", standby.name, "--url", standby.url)).out, new RegExp(`^${standby.name} leads already at `));
  const alone = await run("leader", "--master", "127.0.0.1:1", "--url", "http://127.0.0.1:1");
  assert.equal(alone.code, 1);
});

void test("KV events continue across a takeover: batch numbers and event ids increase, and a replay at the new leader brings every key", async () => {
  const ports = await freePorts(4);
  const endpoints = new Map([
    ["ada", [`tcp://127.0.0.1:${ports[0]}`, `tcp://127.0.0.1:${ports[1]}`]],
    ["bob", [`tcp://127.0.0.1:${ports[2]}`, `tcp://127.0.0.1:${ports[3]}`]],
  ] as const);
  await using cluster = await startCluster({
    flagsOf: (name) => {
      const [bind, replay] = endpoints.get(name as "ada") ?? [];
      return ["--enable_kv_events=true", "--kv_events_backend_id=store", `--kv_events_bind_endpoint=${bind}`, `--kv_events_replay_endpoint=${replay}`];
    },
  });
  const first = await cluster.inSync(1);
  const second = cluster.nodes.find((node) => node !== first) as HaNode;
  using before = subscribe(endpoints.get(first.name as "ada")?.[0] as string);
  using after = subscribe(endpoints.get(second.name as "ada")?.[0] as string);
  await using client = await openAt(cluster, 16 * MIB);
  let put = 0;
  // Subscribers receive only what is published after they have connected.
  await until("the first leader publishes", async () => {
    await client.put(String(1000 + put++), Buffer.from("x"));
    return before.batches.length >= 3 ? true : undefined;
  });
  await first.kill();
  await until("the next leader publishes", async () => {
    await client.put(String(1000 + put++), Buffer.from("x"));
    return after.batches.length >= 3 ? true : undefined;
  });
  const last = (batches: readonly { sequence: number }[]) => Math.max(...batches.map(({ sequence }) => sequence));
  assert.ok(Math.min(...after.batches.map(({ sequence }) => sequence)) > last(before.batches));
  const ids = (events: readonly { event_id: number }[]) => events.map(({ event_id }) => event_id);
  assert.ok(Math.min(...ids(after.events())) > Math.max(...ids(before.events())), "an event id was given twice");
  const replayed = await askReplay(endpoints.get(second.name as "ada")?.[1] as string, 0);
  const keys = new Set(replayed.flatMap(({ events }) => events.map(({ object_key }) => object_key)));
  for (let at = 0; at < put; at++) assert.ok(keys.has(String(1000 + at)), `key ${1000 + at} is not in the replay`);
});
