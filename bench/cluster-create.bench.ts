// Creates in a deployment: the latency a gateway adds, the requests to etcd per create, 300 at once, and a minute without etcd. Needs root,
// runc, runsc and etcd. `./svc bench cluster-create`; part of `./svc bench cluster`.
import { setTimeout as sleep } from "node:timers/promises";
import { call } from "@svc/contract/call.ts";
import { pauseSandbox, resumeSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox } from "@svc/contract/sandbox.ts";
import { DEPLOYMENT_KEY } from "@svc/harness/deployment.ts";
import type { TestGateway } from "@svc/harness/gateway.ts";
import type { TestNode } from "@svc/harness/node.ts";
import { type Cluster, saidBy, startCluster, timed } from "./cluster-nodes.ts";
import { median, progress, type Row, report } from "./report.ts";

const ROUNDS = 40;
const BURST = 300;
const OUTAGE_MS = 60_000;
const CALL_MS = 600_000;
/** The wait until the pool has refilled, so that the next create gets a warm sandbox. */
const REFILL_MS = 400;

const rows: Row[] = [];
const raw: Record<string, unknown> = {};
const parts = new Set((process.env["SVC_BENCH_PARTS"] ?? "create,burst,outage").split(","));
for (const [part, run] of Object.entries({ create: creates, burst, outage })) {
  if (!parts.has(part)) continue;
  progress(part);
  await run();
}
report(parts.size === 3 ? "cluster-create" : `cluster-create-${[...parts].join("-")}`, rows, raw);

/** Creates alternate between node and gateway, from a pool, so that the node's own time is short and the gateway's share is visible. */
async function creates(): Promise<void> {
  const flags = ["--pool.templates=base=4", "--sandbox.max_sandboxes=500"];
  await using cluster = await startCluster({ runtime: "runc", nodes: 3, gateways: 2, hasObjects: true, flags });
  const entries: readonly (readonly [string, readonly (TestNode | TestGateway)[]])[] = [
    ["node", cluster.nodes],
    ["gateway", cluster.gateways],
  ];
  const took: Record<string, number[]> = { node: [], gateway: [] };
  await sleep(5_000);
  const idle = await etcdRequests(cluster);
  await sleep(5_000);
  const perSecond = ((await etcdRequests(cluster)) - idle) / 5;
  const before = await etcdRequests(cluster);
  const begin = performance.now();
  for (let round = 0; round < ROUNDS; round++) {
    if (round % 10 === 0) progress(`create: ${round} of ${ROUNDS} rounds`);
    for (const [name, all] of entries) {
      const entry = all[round % all.length] as TestNode;
      let sandboxID = "";
      took[name]?.push(await timed(async () => ({ sandboxID } = await entry.call(createSandbox, { templateID: "base" }))));
      await entry.call(deleteSandbox, { sandboxID });
      await sleep(REFILL_MS);
    }
  }
  const seconds = (performance.now() - begin) / 1000;
  const requests = (await etcdRequests(cluster)) - before;
  const [node, gateway] = [median(took["node"] ?? []), median(took["gateway"] ?? [])];
  rows.push({ what: "create of a warm sandbox at the node itself", value: node, unit: "ms", samples: ROUNDS });
  rows.push({
    what: "create of a warm sandbox through a gateway",
    value: gateway,
    unit: "ms",
    goal: { atMost: Number((node + 2).toFixed(1)) },
    samples: ROUNDS,
  });
  rows.push({ what: "requests to etcd a second while nothing happens (2 gateways, 3 nodes)", value: perSecond, unit: "/s" });
  const beside = requests - perSecond * seconds;
  rows.push({
    what: `requests to etcd for each of ${2 * ROUNDS} creates`,
    value: Math.max(0, Math.round((beside / (2 * ROUNDS)) * 100) / 100),
    unit: "",
    goal: { atMost: 0 },
  });
  Object.assign(raw, { "create, ms": took, etcd: { requests, seconds, idlePerSecond: perSecond } });
}

async function metricsOf(node: TestNode): Promise<string> {
  return (await fetch(`${node.url}/metrics`, { headers: { "x-api-key": node.apiKey } })).text();
}

/** Counts the reads and writes that etcd has served, without lease renewals. */
async function etcdRequests({ deployment }: Cluster): Promise<number> {
  const text = await (await fetch(`${deployment.server.endpoints[0]}/metrics`)).text();
  const found = [...text.matchAll(/^grpc_server_started_total\{grpc_method="(?:Range|Put|Txn|DeleteRange)",[^}]*\} (\S+)$/gm)];
  return found.reduce((sum, [, count]) => sum + Number(count), 0);
}

/** Uses the fastest runtime, because only the gateways' choice of nodes matters. */
async function burst(): Promise<void> {
  const flags = ["--sandbox.max_sandboxes=500", "--sandbox.memory_mb=64"];
  await using cluster = await startCluster({ runtime: "bubblewrap", nodes: 3, gateways: 2, hasObjects: false, flags });
  const failures: string[] = [];
  const begin = performance.now();
  await Promise.all(
    Array.from({ length: BURST }, async (_, index) => {
      const gateway = cluster.gateways[index % cluster.gateways.length] as TestGateway;
      const where = { baseURL: gateway.url, apiKey: DEPLOYMENT_KEY, timeoutMs: CALL_MS };
      await call(createSandbox, { templateID: "base", timeout: 3_000 }, where).catch((error: Error) => failures.push(error.message));
    }),
  );
  const seconds = (performance.now() - begin) / 1000;
  const held = await Promise.all(
    cluster.nodes.map(async (node) => Number(/^svc_node_sandboxes\{state="running"\} (\d+)/m.exec(await metricsOf(node))?.[1] ?? Number.NaN)),
  );
  const even = BURST / cluster.nodes.length;
  const most = Math.max(...held.map((count) => Math.abs(count - even))) / even;
  rows.push({ what: `failures of ${BURST} creates at once`, value: failures.length, unit: "", goal: { atMost: 0 }, note: failures[0] ?? "" });
  rows.push({ what: "a node's share of them, off an even one by at most", value: most * 100, unit: "%", goal: { atMost: 10 } });
  rows.push({ what: "until the last of them was answered", value: seconds, unit: "s" });
  raw["burst"] = { held, failures, seconds };
}

/** Without object storage no other node could take over a paused sandbox, so its resume needs no etcd. */
async function outage(): Promise<void> {
  await using cluster = await startCluster({ runtime: "gvisor", nodes: 3, gateways: 2, hasObjects: false, flags: [] });
  const [etcd] = cluster.deployment.server.members;
  const done: Record<string, number> = { creates: 0, commands: 0, pauses: 0, resumes: 0 };
  const failures: string[] = [];
  const one = async (kind: string, work: () => Promise<unknown>) => {
    await work().then(
      () => void (done[kind] = (done[kind] ?? 0) + 1),
      (error: Error) => failures.push(`${kind}: ${error.message}`),
    );
  };
  await etcd?.freeze();
  const end = performance.now() + OUTAGE_MS;
  for (let round = 0; performance.now() < end; round++) {
    const gateway = cluster.gateways[round % cluster.gateways.length] as TestGateway;
    let sandbox: { sandboxID: string; envdAccessToken?: string | undefined } | undefined;
    await one("creates", async () => {
      sandbox = await gateway.call(createSandbox, { templateID: "base", timeout: 3_000 });
    });
    if (sandbox === undefined) continue;
    const known = sandbox;
    await one("commands", () => saidBy(gateway.url, known, "echo on"));
    await one("pauses", () => gateway.call(pauseSandbox, { sandboxID: known.sandboxID }));
    await one("resumes", () => gateway.call(resumeSandbox, { sandboxID: known.sandboxID, timeout: 3_000 }));
    await one("commands", () => saidBy(gateway.url, known, "echo on"));
    await gateway.call(deleteSandbox, { sandboxID: known.sandboxID });
  }
  etcd?.thaw();
  const what = Object.entries(done)
    .map(([kind, count]) => `${count} ${kind}`)
    .join(", ");
  rows.push({ what: `failures in a minute without etcd (${what})`, value: failures.length, unit: "", goal: { atMost: 0 }, note: failures[0] ?? "" });
  raw["outage"] = { done, failures };
}
