// Route migrations: objects moved by the admin server and our executor, compared with the same bytes moved by the transfer engine alone.
import { setTimeout as sleep } from "node:timers/promises";
import { openEngine } from "../packages/store/src/client/session/transfer-engine.ts";
import { StoreClient } from "../packages/store/src/client/store-client.ts";
import { RpcClient } from "../packages/store/src/rpc/client.ts";
import { type Body, type Cluster, type Server, startCluster } from "../packages/store-admin/test/cluster.ts";
import { alloc } from "../packages/transfer/src/memory.ts";
import { median, type Row, report } from "./report.ts";

const OBJECTS = Number(process.env["SVC_BENCH_OBJECTS"] ?? 10_000);
const ROUNDS = Number(process.env["SVC_BENCH_ROUNDS"] ?? 3);
const OBJECT_BYTES = 64 * 1024;
const BATCH = 64;
const MEMORY = ["--global_segment_size=1536mb"];
const POSTS_AT_ONCE = 16;
const ASSIGNED_AT_ONCE = 256;
const GOAL = 0.6;
const MOVE = 1;
const [FAILED, SUCCEEDED] = [2, 3];

type Place = { readonly address: bigint };
const keys = Array.from({ length: OBJECTS }, (_, at) => `object-${at}`);

/** Objects per second from one segment to another, in batches of ranges. */
async function engineAlone(from: { name: string; places: readonly Place[] }, to: { name: string; places: readonly Place[] }): Promise<number> {
  const engine = await openEngine({ localHostname: "127.0.0.1", metadata: "P2PHANDSHAKE", protocol: "tcp", settings: {} });
  const memory = alloc(BATCH * OBJECT_BYTES);
  const start = await engine.registerLocalMemory(memory, { remoteAccessible: false });
  const [source, target] = [await engine.openSegment(from.name), await engine.openSegment(to.name)];
  const words = (places: readonly Place[]) =>
    BigUint64Array.from(places.flatMap(({ address }, at) => [start + BigInt(at * OBJECT_BYTES), address, BigInt(OBJECT_BYTES)]));
  const begun = performance.now();
  for (let at = 0; at < from.places.length; at += BATCH) {
    const some = from.places.slice(at, at + BATCH);
    await engine.transfer("READ", source, words(some), 30_000);
    await engine.transfer("WRITE", target, words(to.places.slice(at, at + some.length)), 30_000);
  }
  const perSecond = (from.places.length * 1000) / (performance.now() - begun);
  await engine.freeEngine();
  return perSecond;
}

/** Objects per second, from the first request to the end of the last task. */
async function migrations(cluster: Cluster, from: string, to: string): Promise<number> {
  const begun = performance.now();
  const left = [...keys];
  const post = async () => {
    for (let key = left.pop(); key !== undefined; key = left.pop()) {
      const request = {
        authority: "store-master",
        tenant: "default",
        key,
        source_segment: from,
        target_segments: [to],
        task_executor: "worker",
        max_retries: 20,
      };
      const { status, body } = await cluster.ask("POST", "/v1/route-migrations/move", request);
      if (status !== 200) throw new Error(`${key}: ${JSON.stringify(body)}`);
    }
  };
  await Promise.all(Array.from({ length: POSTS_AT_ONCE }, post));
  for (;;) {
    const text = (await cluster.ask("GET", "/metrics")).body as Body;
    const open = ["pending", "dispatching", "running", "retry_wait"].reduce((sum, state) => sum + countOf(text, state), 0);
    if (countOf(text, "failed") > 0) throw new Error(`${countOf(text, "failed")} migrations failed`);
    if (open === 0) return (OBJECTS * 1000) / (performance.now() - begun);
    await sleep(20);
  }
}

/** Objects per second, from the moment the executor may begin; its tasks wait at the master. */
async function byExecutor(cluster: Cluster, worker: Server, from: string, to: string): Promise<number> {
  const [host = "", port] = cluster.rpc.split(":");
  const rpc = await RpcClient.connect(host, Number(port));
  await worker.freeze();
  const ids: string[] = [];
  for (let at = 0; at < keys.length; at += ASSIGNED_AT_ONCE) {
    const some = keys.slice(at, at + ASSIGNED_AT_ONCE);
    for (const answer of await Promise.all(some.map((key) => rpc.call("AssignMigration", "worker", 0n, MOVE, key, "", from, [to])))) {
      if (!answer.ok) throw new Error(`the master refused a move with ${answer.code}`);
      ids.push(answer.value);
    }
  }
  const stateOf = async (id: string) => {
    const answer = await rpc.call("QueryTask", id);
    if (!answer.ok || answer.value.status === FAILED) throw new Error(`task ${id}: ${answer.ok ? answer.value.message : answer.code}`);
    return answer.value.status;
  };
  worker.thaw();
  const begun = performance.now();
  let endedMs = begun;
  // The last task is fetched last, so the others are usually finished when it is.
  for (const id of ids.toReversed())
    while ((await stateOf(id)) !== SUCCEEDED) {
      await sleep(5);
      endedMs = performance.now();
    }
  rpc.close();
  return (OBJECTS * 1000) / (endedMs - begun);
}

const countOf = (text: string, state: string) => Number(new RegExp(`^svc_store_admin_migrations\\{state="${state}"\\} (\\d+)`, "m").exec(text)?.[1] ?? 0);

await using cluster = await startCluster({
  master: ["--default_kv_lease_ttl=100ms", "--store.suspect_after_ms=600000", "--client_ttl=600s"],
  admin: ["--store_admin.max_migrations=100000", "--store_admin.migration_poll_interval_ms=100", "--log-level=error"],
});
const [one, two] = [await cluster.addService("one", MEMORY), await cluster.addService("two", MEMORY)];
const worker = await cluster.addService("worker", ["--global_segment_size=0"]);
const [a, b] = [await one.segment(), await two.segment()];
await using client = await StoreClient.open({ master: cluster.rpc });
const value = Buffer.alloc(OBJECT_BYTES, 7);
for (let at = 0; at < keys.length; at += BATCH) {
  const outcomes = await client.putBatch(
    keys.slice(at, at + BATCH).map((key) => ({ key, value })),
    { preferredSegments: [a] },
  );
  if (!outcomes.every((outcome) => outcome === true)) throw new Error("objects were not stored");
}
const scratch = Array.from({ length: BATCH }, (_, at) => `scratch-${at}`);
await client.putBatch(
  scratch.map((key) => ({ key, value })),
  { preferredSegments: [b] },
);
/** Returns unused addresses behind the target's objects, because a move also writes memory that is in no cache. */
function roomBehind(places: readonly Place[]): Place[] {
  const last =
    places
      .map(({ address }) => address)
      .toSorted((a, b) => (a < b ? -1 : 1))
      .at(-1) ?? 0n;
  return keys.map((_, at) => ({ address: last + BigInt((at + 1) * OBJECT_BYTES) }));
}
const placesOf = async (names: readonly string[]): Promise<Place[]> =>
  Promise.all(names.map(async (key) => (await client.replicas(key))[0] ?? { address: 0n }));

const [alone, moved, posted]: [number[], number[], number[]] = [[], [], []];
// Readers' leases delay the memory that a move frees.
const quiet = () => sleep(300);
// The first use of fresh memory costs a page fault per page.
await engineAlone({ name: a, places: await placesOf(keys) }, { name: b, places: roomBehind(await placesOf(scratch)) });
for (let round = 0; round < ROUNDS; round++) {
  alone.push(await engineAlone({ name: a, places: await placesOf(keys) }, { name: b, places: roomBehind(await placesOf(scratch)) }));
  await quiet();
  moved.push(await byExecutor(cluster, worker, a, b));
  await quiet();
  posted.push(await migrations(cluster, b, a));
  await quiet();
}
const share = (some: readonly number[]) => median(some.map((each, at) => each / (alone[at] as number)));
const rows: Row[] = [
  { what: "transfer engine alone, batches of 64", value: median(alone), unit: "objects/s", samples: alone.length },
  { what: "moves by an executor", value: median(moved), unit: "objects/s", samples: moved.length, note: "fetched, begun, moved, checked and ended in lots" },
  { what: "  to the engine's rate", value: share(moved), unit: "x", goal: { atLeast: GOAL } },
  { what: "the same by the admin server, a POST each", value: median(posted), unit: "objects/s", samples: posted.length },
  { what: "  to the engine's rate", value: share(posted), unit: "x" },
];
report("store-move", rows, { objects: OBJECTS, objectBytes: OBJECT_BYTES, alone, moved, posted });
