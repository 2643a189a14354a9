// What is transferred between the nodes of a deployment: a paused sandbox from its node or from object storage, and a snapshot that forks start from.
// Needs root, runsc, etcd and the tests' object server. `./svc bench cluster-transfer`; part of `./svc bench cluster`.
import { randomBytes } from "node:crypto";
import { connectSandbox, createSnapshot, moveSandbox, pauseSandbox } from "@svc/contract/lifecycle.ts";
import { removeNode } from "@svc/contract/node-control.ts";
import { createSandbox, deleteSandbox } from "@svc/contract/sandbox.ts";
import { nodeIDOf } from "@svc/harness/fed-nodes.ts";
import type { TestGateway } from "@svc/harness/gateway.ts";
import type { TestNode } from "@svc/harness/node.ts";
import { until } from "@svc/harness/until.ts";
import { openObjects } from "@svc/kit/objects/open-objects.ts";
import { saidBy, startCluster, timed } from "./cluster-nodes.ts";
import { median, progress, type Row, report } from "./report.ts";

/** With what a sandbox has of its own, 100 MB of memory that does not shrink. */
const NOISE_BYTES = 90_000_000;
const SAMPLES = 3;
const MEASURED_BYTES = 100_000_000;
const CHUNK_BYTES = 4 * 2 ** 20;
const AT_ONCE = 8;

await using cluster = await startCluster({ runtime: "gvisor", nodes: 3, gateways: 2, hasObjects: true, flags: ["--sandbox.memory_mb=512"] });
const gateway = cluster.gateways[0] as TestGateway;
const [from, to, third] = cluster.nodes as [TestNode, TestNode, TestNode];
const rows: Row[] = [];
const raw: Record<string, unknown> = {};

const numberOf = async (node: TestNode, name: string): Promise<number> => {
  const text = await (await fetch(`${node.url}/metrics`, { headers: { "x-api-key": node.apiKey } })).text();
  return Number(
    text
      .split("\n")
      .find((line) => line.startsWith(`${name} `))
      ?.split(" ")[1] ?? 0,
  );
};
const moved = async (node: TestNode) =>
  (await numberOf(node, 'svc_node_snapshot_transfer_bytes_total{direction="fetched"}')) +
  (await numberOf(node, 'svc_node_snapshot_transfer_bytes_total{direction="peer"}'));
const isExported = () => until("it is exported", async () => ((await numberOf(from, "svc_node_exports_waiting")) === 0 ? true : undefined));

type Held = { readonly sandboxID: string; readonly envdAccessToken?: string | undefined };
async function pausedOnes(): Promise<readonly Held[]> {
  const all: Held[] = [];
  for (let index = 0; index < SAMPLES; index++) {
    const sandbox = await from.call(createSandbox, { templateID: "base", timeout: 3_000 });
    await saidBy(from.url, sandbox, `head -c ${NOISE_BYTES} /dev/urandom > /dev/shm/noise`);
    await from.call(pauseSandbox, { sandboxID: sandbox.sandboxID });
    all.push(sandbox);
  }
  await isExported();
  return all;
}
const isWhole = async (sandbox: Held) => {
  if ((await saidBy(gateway.url, sandbox, "stat -c %s /dev/shm/noise")) !== String(NOISE_BYTES)) throw new Error("its memory is not whole");
};

progress("from its peer");
const peer: number[] = [];
const bytes: number[] = [];
for (const sandbox of await pausedOnes()) {
  const { sandboxID } = sandbox;
  const before = await moved(to);
  peer.push(
    await timed(async () => {
      await gateway.call(moveSandbox, { sandboxID, nodeID: nodeIDOf(to) });
      await gateway.call(connectSandbox, { sandboxID, timeout: 3_000 });
    }),
  );
  bytes.push((await moved(to)) - before);
  await isWhole(sandbox);
  await gateway.call(deleteSandbox, { sandboxID });
}
rows.push({ what: "bytes of a paused sandbox that was transferred", value: median(bytes) / 1e6, unit: "MB", samples: SAMPLES });
rows.push({ what: "resumed on another node, from its peer", value: median(peer) / 1000, unit: "s", goal: { atMost: 1.5 }, samples: SAMPLES });

progress("forks of one snapshot");
const { snapshotID, forks } = await forksOfOne();
rows.push({ what: "bytes moved for the first fork of a snapshot on another node", value: (forks[0] ?? Number.NaN) / 1e6, unit: "MB" });
rows.push({ what: "bytes moved for the second fork there", value: forks[1] ?? Number.NaN, unit: "B", goal: { atMost: 0 } });
raw["forks"] = { snapshotID, bytes: forks };

/** One snapshot, started twice on a node that did not take it. */
async function forksOfOne(): Promise<{ snapshotID: string; forks: number[] }> {
  const sandbox = await from.call(createSandbox, { templateID: "base", timeout: 3_000 });
  await saidBy(from.url, sandbox, `head -c ${NOISE_BYTES} /dev/urandom > /dev/shm/noise`);
  const taken = await from.call(createSnapshot, { sandboxID: sandbox.sandboxID });
  await from.call(deleteSandbox, { sandboxID: sandbox.sandboxID });
  await isExported();
  const all: number[] = [];
  for (let fork = 0; fork < 2; fork++) {
    const before = await moved(third);
    const started = await third.call(createSandbox, { templateID: taken.snapshotID, timeout: 3_000 });
    all.push((await moved(third)) - before);
    if ((await saidBy(third.url, started, "stat -c %s /dev/shm/noise")) !== String(NOISE_BYTES)) throw new Error("the fork is not whole");
    await third.call(deleteSandbox, { sandboxID: started.sandboxID });
  }
  return { snapshotID: taken.snapshotID, forks: all };
}

/** What the object server gives to as many requests at once as a node sends. */
async function rateOfObjects(): Promise<number> {
  const { endpoint = "", env = {} } = cluster.objects ?? {};
  const settings = { url: "s3://test/rate", endpoint, region: "us-east-1", path_style: true, credentials_file: "", concurrency: AT_ONCE };
  const objects = await openObjects({ ...settings, bandwidth_mb_per_second: 0, collect_interval_seconds: 0, collect_grace_seconds: 0 }, "process", env);
  const keys = Array.from({ length: Math.ceil(MEASURED_BYTES / CHUNK_BYTES) }, (_, index) => `chunk-${index}`);
  for (const key of keys) await objects.put(key, randomBytes(CHUNK_BYTES));
  const left = [...keys];
  const read = async () => {
    for (let key = left.pop(); key !== undefined; key = left.pop()) await objects.get(key, CHUNK_BYTES);
  };
  const tookMs = await timed(() => Promise.all(Array.from({ length: AT_ONCE }, read)));
  await objects.close();
  return (keys.length * CHUNK_BYTES) / 1000 / tookMs;
}

progress("from the object server");
const left = await pausedOnes();
const rate = await rateOfObjects();
await from.kill("SIGKILL");
await until("it can be removed", () =>
  gateway.call(removeNode, { nodeID: nodeIDOf(from), dead: true }).then(
    () => true as const,
    () => undefined,
  ),
);
const storage: number[] = [];
for (const sandbox of left) {
  storage.push(await timed(() => gateway.call(connectSandbox, { sandboxID: sandbox.sandboxID, timeout: 3_000 })));
  await isWhole(sandbox);
}
const asked = Math.max(3, median(bytes) / 1e6 / rate + 1);
rows.push({ what: "the object server's own rate for chunks", value: rate, unit: "MB/s" });
rows.push({
  what: "resumed on another node, from the object server",
  value: median(storage) / 1000,
  unit: "s",
  goal: { atMost: Number(asked.toFixed(2)) },
  samples: SAMPLES,
});
Object.assign(raw, { "from its peer, ms": peer, "from the object server, ms": storage, "bytes that was transferred": bytes });
report("cluster-transfer", rows, raw);
