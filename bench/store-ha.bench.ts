// Several masters: how long puts wait for a takeover, what is lost, how long a planned handover stalls, and the cost of waiting for a
// standby.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { openDiscovery } from "../packages/store/src/client/session/discovery.ts";
import { RpcClient } from "../packages/store/src/rpc/client.ts";
import { clientID, plain, segmentOf } from "../packages/store/test/calls.ts";
import { type Cluster, type HaNode, startCluster } from "../packages/store/test/ha-cluster.ts";
import { startMaster } from "../packages/store/test/master.ts";
import { median, percentile, type Row, report } from "./report.ts";
import { type FieldTakeover, fieldTakeover } from "./store-field-ha.ts";
import { restTakeovers } from "./store-ha-rest.ts";
import { buildRaw, Driven, frameOf, type Process, writeFrames } from "./store-masters.ts";

const KILLS = Number(process.env["SVC_BENCH_KILLS"] ?? 40);
const OTHERS = Number(process.env["SVC_BENCH_ROUNDS"] ?? 5);
const REST_ROUNDS = 20;
const WRITERS = 4;
const PAIRS = 3;
const KEYS = 20_000;
const CLIENTS = 64;
const SEGMENT_BYTES = 1n << 40n;
const FIELD_ROUNDS = 3;
const quiet = ["--client_ttl=600s", "--store.suspect_after_ms=600000"];
/** The default settings; tests use longer ones. */
const bounds = ["--store.takeover_after_ms=600", "--store.standby_timeout_ms=1000"];

/** Writers that follow the leader and record when each put was acknowledged. */
class Writers {
  readonly acknowledged: { key: string; begunMs: number; atMs: number }[] = [];
  #isOver = false;
  readonly #loops: Promise<void>[];

  constructor(cluster: Cluster, round: string) {
    this.#loops = Array.from({ length: WRITERS }, (_, number) => this.#write(cluster, `${round}-${number}`));
  }

  async #write({ address, clusterID }: Cluster, prefix: string): Promise<void> {
    const discovery = openDiscovery(address, { brand: "svc", clusterID });
    let rpc: RpcClient | undefined;
    discovery.onMove(() => rpc?.abandon("another master leads"));
    for (let at = 0; !this.#isOver; at++) {
      const key = `${prefix}-${at}`;
      const begunMs = performance.now();
      try {
        if (rpc === undefined) {
          const { host, port } = await discovery.find();
          rpc = await RpcClient.connect(host, port, { connectMs: 500, callMs: 5_000 });
        }
        const begun = await rpc.call("PutStart", clientID, key, 64n, plain, "");
        const ended = begun.ok ? await rpc.call("PutEnd", clientID, { key, checksum: 1n }, 4, "") : begun;
        if (!ended.ok) throw new Error(`refused with ${ended.code}`);
        this.acknowledged.push({ key, begunMs, atMs: performance.now() });
      } catch {
        rpc?.close();
        rpc = undefined;
        await sleep(2);
      }
    }
    rpc?.close();
    await discovery.close();
  }

  async more(count: number): Promise<void> {
    const wanted = this.acknowledged.length + count;
    while (this.acknowledged.length < wanted) await sleep(1);
  }

  /** The time from `ms` until a put that began later is acknowledged. */
  gapAfter(ms: number): number {
    return (this.acknowledged.find(({ begunMs }) => begunMs > ms)?.atMs ?? Number.NaN) - ms;
  }

  /** The longest time without an acknowledged put. */
  longestGap(fromMs: number): number {
    const times = this.acknowledged.map(({ atMs }) => atMs).filter((atMs) => atMs >= fromMs);
    return Math.max(...times.slice(1).map((atMs, index) => atMs - (times[index] as number)));
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#loops);
  }
}

async function lost(leader: HaNode, keys: readonly string[]): Promise<number> {
  const rpc = await leader.rpc();
  let missing = 0;
  for (let at = 0; at < keys.length; at += 500) {
    const answers = await rpc.call("BatchExistKey", keys.slice(at, at + 500), "");
    const refused = answers.find((answer) => !answer.ok);
    if (refused !== undefined && !refused.ok) throw new Error(`${leader.name} refused to say what it has: ${refused.code}`);
    missing += answers.filter((answer) => answer.ok && !answer.value).length;
  }
  rpc.close();
  return missing;
}

async function mount(leader: HaNode): Promise<void> {
  const rpc = await leader.rpc();
  await rpc.call("MountSegment", segmentOf(1, SEGMENT_BYTES), clientID);
  rpc.close();
}

type Strike = (leader: HaNode, writers: Writers) => Promise<{ gapMs: number; heal(): Promise<void> }>;

async function rounds(cluster: Cluster, name: string, count: number, strike: Strike): Promise<{ gaps: number[]; acknowledged: number; missing: number }> {
  const gaps: number[] = [];
  let [acknowledged, missing] = [0, 0];
  for (let round = 0; round < count; round++) {
    const leader = await cluster.inSync(1);
    await mount(leader);
    const writers = new Writers(cluster, `${name}-${round}`);
    await writers.more(200);
    const { gapMs, heal } = await strike(leader, writers);
    await writers.more(50);
    gaps.push(gapMs);
    await writers.end();
    acknowledged += writers.acknowledged.length;
    missing += await lost(
      await cluster.leader(),
      writers.acknowledged.map(({ key }) => key),
    );
    await heal();
  }
  return { gaps, acknowledged, missing };
}

const killed: Strike = async (leader, writers) => {
  const atMs = performance.now();
  await leader.kill();
  await writers.more(WRITERS + 1);
  return { gapMs: writers.gapAfter(atMs), heal: () => leader.start() };
};
const frozen: Strike = async (leader, writers) => {
  const atMs = performance.now();
  await leader.freeze();
  await writers.more(WRITERS + 1);
  return { gapMs: writers.gapAfter(atMs), heal: async () => leader.thaw() };
};
const relieved: Strike = async (leader, writers) => {
  const atMs = performance.now();
  const { in_sync } = await leader.ha();
  await leader.ask(`/api/v1/lead?to=${in_sync[0]}`, { method: "POST" });
  await writers.more(500);
  return { gapMs: writers.longestGap(atMs), heal: async () => undefined };
};

/** Returns puts per second (start and end), with one in progress on each of 64 connections. */
async function rate(driven: Driven, folder: string, round: string): Promise<number> {
  const keys = Array.from({ length: KEYS }, (_, at) => `${round}-${at}`);
  const [start, end] = [join(folder, "start"), join(folder, "end")];
  writeFrames(
    start,
    keys.map((key) => frameOf("PutStart", clientID, key, 4096n, plain, "")),
  );
  writeFrames(
    end,
    keys.map((key) => frameOf("PutEnd", clientID, { key, checksum: undefined }, 4, "")),
  );
  const begun = await driven.load(start, CLIENTS, 1);
  const ended = await driven.load(end, CLIENTS, 1);
  return 1 / (1 / begun.perSecond + 1 / ended.perSecond);
}

async function replicationCost(folder: string, durability: string): Promise<{ alone: number[]; replicated: number[] }> {
  const program = buildRaw(folder);
  const flags = [...quiet, `--durability=${durability}`];
  await using single = await startMaster({ flags });
  await using cluster = await startCluster({ flags, level: "warn" });
  const leader = await cluster.inSync(1);
  const processOf = ({ rpcPort, url, pid }: { rpcPort: number; url: string; pid: number }): Process => ({ rpcPort, httpPort: Number(new URL(url).port), pid });
  const alone = await Driven.mount("alone", processOf(single), program, SEGMENT_BYTES);
  const replicated = await Driven.mount("replicated", processOf(leader), program, SEGMENT_BYTES);
  const found = { alone: [] as number[], replicated: [] as number[] };
  for (let pair = 0; pair < PAIRS; pair++) {
    found.alone.push(await rate(alone, folder, `a${pair}`));
    found.replicated.push(await rate(replicated, folder, `r${pair}`));
  }
  alone.close();
  replicated.close();
  return found;
}

const folder = mkdtempSync(join(tmpdir(), "svc-bench-"));
const rows: Row[] = [];
const raw: Record<string, unknown> = {};
try {
  for (const durability of ["process", "disk"]) {
    const cost = await replicationCost(folder, durability);
    raw[`replication, durability ${durability}`] = cost;
    const share = 1 - median(cost.replicated) / median(cost.alone);
    rows.push({
      what: `puts/s, one master (${durability})`,
      value: median(cost.alone),
      unit: "/s",
      samples: PAIRS,
      note: `${CLIENTS} connections, start and end, log on`,
    });
    rows.push({ what: `puts/s with a standby in sync (${durability})`, value: median(cost.replicated), unit: "/s", samples: PAIRS });
    rows.push({
      what: `cost of synchronous replication (${durability})`,
      value: 100 * share,
      unit: "%",
      goal: { atMost: 35 },
      note: "both masters and the load share the cores",
    });
  }
  await using cluster = await startCluster({ flags: [...quiet, ...bounds], level: "warn" });
  for (const [name, what, count, strike, goals] of [
    ["kill", "kill -9 of the leader to the next put", KILLS, killed, [700, 1500]],
    ["freeze", "SIGSTOP of the leader to the next put", OTHERS, frozen, [3000, 3000]],
    ["relief", "hand-over: longest stall of puts", OTHERS, relieved, [300, 300]],
  ] as const) {
    const { gaps, acknowledged, missing } = await rounds(cluster, name, count, strike);
    raw[what] = { gaps, acknowledged, missing };
    rows.push({ what: `${what}, p50`, value: median(gaps), unit: "ms", goal: { atMost: goals[0] }, samples: count });
    rows.push({ what: `${what}, p99`, value: percentile(gaps, 0.99), unit: "ms", goal: { atMost: goals[1] }, samples: count });
    rows.push({ what: `${what}: acknowledged keys lost`, value: missing, unit: "keys", goal: { atMost: 0 }, note: `of ${acknowledged}` });
  }
  const rest = await restTakeovers(cluster, REST_ROUNDS);
  raw["kill -9 of the leader under puts by REST"] = rest;
  const what = "kill -9 of the leader to the first answered put by REST";
  rows.push({ what: `${what}, p50`, value: median(rest.gaps), unit: "ms", goal: { atMost: 100 }, samples: REST_ROUNDS });
  rows.push({ what: `${what}, longest`, value: Math.max(...rest.gaps), unit: "ms", goal: { atMost: 300 }, samples: REST_ROUNDS });
  rows.push({
    what: "puts by REST: acknowledged keys lost",
    value: rest.missing,
    unit: "keys",
    goal: { atMost: 0 },
    note: `of ${rest.acknowledged}; ${rest.refused} puts failed and were sent again`,
  });
  const takeovers: FieldTakeover[] = [];
  for (let round = 0; round < FIELD_ROUNDS; round++) takeovers.push(...[await fieldTakeover()].flatMap((each) => each ?? []));
  raw["the field's masters"] = takeovers;
  if (takeovers.length > 0) {
    const left = `${takeovers.map((each) => each.left).join(", ")} of ${takeovers[0]?.of} keys left`;
    rows.push({
      what: "theirs with etcd: kill -9 to the next put, p50",
      value: median(takeovers.map(({ gapMs }) => gapMs)),
      unit: "ms",
      samples: takeovers.length,
      note: left,
    });
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
report("store-ha", rows, raw);
