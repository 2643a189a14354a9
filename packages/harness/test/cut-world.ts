// Runs in a separate network namespace: two nodes, a gateway, etcd and an object server, each in its own namespace. Any two are cut off
// from each other while clients create, use, pause, resume, move, fork and delete sandboxes. A model judges the answers.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { clusterKeys } from "@svc/contract/cluster-records.ts";
import { pauseSandbox } from "@svc/contract/lifecycle.ts";
import { listNodes } from "@svc/contract/nodes.ts";
import { deleteSandbox, listSandboxes } from "@svc/contract/sandbox.ts";
import { endWithUs } from "@svc/harness/children.ts";
import { openEtcd } from "@svc/kit/etcd/client.ts";
import { openObjects } from "@svc/kit/objects/open-objects.ts";
import { CHUNKS, EXPORT_MS, MANIFESTS } from "@svc/sandbox/snapshot-transfer/chunk-store.ts";
import { collectChunks } from "@svc/sandbox/snapshot-transfer/collect-chunks.ts";
import { append, ask, begin, type Client, step } from "../src/cut-clients.ts";
import { emptyHistory, type Known } from "../src/cut-model.ts";
import { DEPLOYMENT_KEY, DEPLOYMENT_SEED } from "../src/deployment.ts";
import { startGateway } from "../src/gateway.ts";
import { makeHome, removeHome } from "../src/home.ts";
import { leftovers } from "../src/leftovers.ts";
import { type Cut, inside, openNamespaces } from "../src/namespaces.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { startObjectServer } from "../src/object-server.ts";
import { generator, pick } from "../src/storm-plan.ts";
import { until } from "../src/until.ts";

const seed = Number(process.argv[2]);
const rounds = Number(process.argv[3]);
const clientCount = Number(process.argv[4]);
const LEASE_SECONDS = 3;
const DEAD_AFTER_SECONDS = 2;
/** Long enough for a node that is cut off from etcd to be declared dead. */
const DEADLY_MS = (LEASE_SECONDS + DEAD_AFTER_SECONDS + 2) * 1000;
const CUT_MS = [500, 3_000] as const;
const QUIET_MS = 500;
/** The pause between two requests of one client. */
const REST_MS = 50;
const links = [
  ["gateway", "ada"],
  ["gateway", "bob"],
  ["gateway", "etcd"],
  ["gateway", "objects"],
  ["ada", "bob"],
  ["ada", "etcd"],
  ["bob", "etcd"],
  ["ada", "objects"],
  ["bob", "objects"],
] as const;

const random = generator(seed);
/** Logs the test's progress, to explain a failure. */
const at = (what: string) => process.stderr.write(`${Math.round(performance.now())} ms: ${what}\n`);
const history = emptyHistory();
await using stack = new AsyncDisposableStack();
const namespaces = stack.use(openNamespaces(["gateway", "ada", "bob", "etcd", "objects"]));
const endpoint = await startEtcdThere();
const objectServer = stack.use(await startObjectServer(namespaces.at("objects")));
const storage = ["--objects.url=s3://test/cut", `--objects.endpoint=${objectServer.endpoint}`, "--snapshots.durable=true"];
const cluster = [`--etcd=${endpoint}`, `--cluster.lease_seconds=${LEASE_SECONDS}`, `--cluster.dead_after_seconds=${DEAD_AFTER_SECONDS}`];
const env = { SVC_API_KEY: DEPLOYMENT_KEY, SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: DEPLOYMENT_SEED, ...objectServer.env };
const nodes = new Map<string, TestNode>();
for (const name of ["ada", "bob"]) {
  // The intervals of exports, collection and expiry are the default ones, which are already the shortest.
  const flags = [...cluster, ...storage, "--sandbox.max_sandboxes=64"];
  nodes.set(name, stack.use(await startNode({ runtime: "gvisor", namespace: namespaces.at(name), env, flags })));
}
const flags = ["--gateway.node_silence_ms=2000", "--gateway.queue_timeout_seconds=5", ...storage.slice(0, 2)];
const gateway = stack.use(await startGateway({ etcd: [endpoint], apiKey: DEPLOYMENT_KEY, namespace: namespaces.at("gateway"), env: objectServer.env, flags }));
await allReady();
at("all is up");

let isOver = false;
const clients = Array.from({ length: clientCount }, (_, index): Client => {
  return { gateway, history, random: generator(seed ^ Math.imul(index + 1, 0x85ebca6b)), own: new Set(), name: `c${index}`, written: 0 };
});
await Promise.all(clients.map(begin));
at("there is something to lose");
const supervisor = supervise();
stack.defer(supervisor.end);
const working = Promise.all(
  clients.map(async (client) => {
    for (; !isOver; await sleep(REST_MS)) await step(client);
  }),
);
const cuts: string[] = [];
for (let round = 0; round < rounds; round++) {
  const [from = "", to = ""] = pick(links, random);
  const isDeadly = round === 0;
  const cut: Cut = isDeadly ? { from: pick(["ada", "bob"], random), to: "etcd", isOneWay: false } : { from, to, isOneWay: random() < 0.3 };
  const lastsMs = isDeadly ? DEADLY_MS : CUT_MS[0] + random() * (CUT_MS[1] - CUT_MS[0]);
  cuts.push(`${cut.from}${cut.isOneWay ? ">" : "-"}${cut.to} ${Math.round(lastsMs)} ms`);
  await sleep(QUIET_MS);
  namespaces.cut(cut);
  await sleep(lastsMs);
  namespaces.heal();
}
at(`cut ${cuts.join(", ")}`);
// On a busy machine the cuts may have refused every operation of one kind, and the model would judge nothing of it.
await until("each kind is acknowledged", () => (["create", "append", "pause"] as const).every((kind) => (history.acknowledged[kind] ?? 0) > 0) || undefined);
isOver = true;
await working;
await allReady();
at("healed");

const sandboxes = (): readonly (readonly [Client, Known])[] =>
  clients.flatMap((client) => [...client.own].flatMap((sandboxID) => [history.known.get(sandboxID) ?? []].flat().map((known) => [client, known] as const)));
await Promise.all(sandboxes().map(([client, known]) => goesOn(client, known)));
at("all go on");
// A paused sandbox is promised to be in object storage, so that a permanently lost node does not take it along.
await Promise.all(sandboxes().map(([, known]) => until(`${known.sandboxID} is paused`, () => isPaused(known))));
at("all are paused");
const judged = sandboxes().length;
const [ada, bob] = [...nodes.values()] as [TestNode, TestNode];
await supervisor.end();
await ada.kill("SIGKILL");
await Promise.all(sandboxes().map(([client, known]) => goesOn(client, known)));
await ada.start();
await allReady();
for (const [, { sandboxID }] of sandboxes()) {
  assert.equal(runsOn(ada, sandboxID), false, `${sandboxID} runs on the node that was declared dead`);
  assert.equal(runsOn(bob, sandboxID), true, `${sandboxID} runs on the node that took it over`);
}
at("the other node has them");
// This includes creates and forks whose answer was lost.
await until("all are deleted", async () => {
  const all = await ask({ gateway }, listSandboxes, { state: "running,paused" });
  await Promise.all(all.map(({ sandboxID }) => ask({ gateway }, deleteSandbox, { sandboxID }).catch(() => undefined)));
  return all.length === 0 ? true : undefined;
});
for (const node of nodes.values()) await until("nothing runs", () => (leftovers(node.home).processes.length === 0 ? true : undefined));
at("all are deleted");
const etcd = openEtcd({ endpoints: [endpoint], attemptMs: 10_000, callMs: 60_000 });
await until("etcd knows of none", async () => ((await etcd.list(clusterKeys("default").sandboxes)).entries.length === 0 ? true : undefined));
await etcd.close();
const chunks = await leftInStorage();
assert.deepEqual(history.wrong, []);
const { known: _, gone: _gone, wrong: _wrong, refused, ...rest } = history;
process.stdout.write(`${JSON.stringify({ cuts, judged, chunks, refused: Object.fromEntries(refused), restarts: supervisor.restarts, ...rest })}\n`);

function runsOn(node: TestNode, sandboxID: string): boolean {
  return leftovers(node.home).processes.some((what) => what.includes(sandboxID));
}

async function startEtcdThere(): Promise<string> {
  const namespace = namespaces.at("etcd");
  const [client, peer] = [`http://${namespace.host}:2379`, "http://127.0.0.1:2380"];
  const data = makeHome();
  stack.defer(() => removeHome(data));
  const command = ["etcd", "--data-dir", `${data}/etcd`, "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer];
  const [program = "", ...args] = inside(namespace, [...command, "--unsafe-no-fsync"]);
  const etcdEnv = { ...process.env, ...(process.arch === "arm64" ? { ETCD_UNSUPPORTED_ARCH: "arm64" } : {}) };
  const child = spawn(program, args, { stdio: "ignore", env: etcdEnv });
  stack.defer(() => void child.kill("SIGKILL"));
  endWithUs(child);
  await until("etcd", () =>
    fetch(`${client}/health`).then(
      (answer) => answer.ok || undefined,
      () => undefined,
    ),
  );
  return client;
}

/** Restarts a node that stopped because it was declared dead, as a supervisor would. */
function supervise() {
  const watch = { restarts: 0, end: async () => {} };
  let isEnded = false;
  const watching = (async () => {
    while (!isEnded) {
      for (const node of nodes.values()) {
        if (!node.hasEnded) continue;
        watch.restarts++;
        await node.start();
      }
      await sleep(200);
    }
  })().catch((error: unknown) => void history.wrong.push(`a node did not start again: ${(error as Error).message}`));
  watch.end = async () => {
    isEnded = true;
    await watching;
  };
  return watch;
}

async function allReady(): Promise<void> {
  await until("both nodes", async () => {
    const listed = await gateway.call(listNodes, {});
    return listed.length === 2 && listed.every(({ status }) => status === "ready") ? true : undefined;
  });
}

/** Waits until the sandbox works with everything that was acknowledged, or is gone and was allowed to be. */
async function goesOn(client: Client, known: Known): Promise<void> {
  const isJudged = async () => ((await append(client, known)) || !history.known.has(known.sandboxID) ? true : undefined);
  await until(`${known.sandboxID} goes on`, isJudged).catch((error: Error) => {
    for (const [name, { log }] of [...nodes, ["gateway", gateway] as const])
      for (const line of log().split("\n")) if (line.includes(known.sandboxID)) process.stderr.write(`${name}: ${line}\n`);
    throw new Error(`${error.message}; ${known.refusal}`);
  });
}

async function isPaused(known: Known): Promise<true | undefined> {
  try {
    await gateway.call(pauseSandbox, { sandboxID: known.sandboxID });
  } catch (error) {
    if ((error as Error).name !== "SANDBOX_PAUSED") return undefined;
  }
  known.state = "paused";
  return true;
}

/**
 * Counts the chunks in storage: no sandbox refers to one any more, and a collection leaves only the templates'. Its clock is ahead, so that
 * interrupted exports count as expired.
 */
async function leftInStorage(): Promise<number> {
  const settings = { url: "s3://test/cut", endpoint: objectServer.endpoint, region: "us-east-1", path_style: true, credentials_file: "" };
  const bounds = { concurrency: 8, bandwidth_mb_per_second: 0, collect_interval_seconds: 0, collect_grace_seconds: 0 };
  const objects = await openObjects({ ...settings, ...bounds }, "process", objectServer.env);
  const keysOf = async (prefix: string) => {
    const keys: string[] = [];
    for await (const { key } of objects.list(prefix)) keys.push(key);
    return keys;
  };
  await until("no sandbox's manifest is left", async () => ((await keysOf(`${MANIFESTS}sandboxes/`)).length === 0 ? true : undefined));
  const before = (await keysOf(CHUNKS)).length;
  for (const key of await keysOf(`${MANIFESTS}bases/`)) await objects.delete(key);
  await collectChunks(objects, { nodeID: "judge", graceMs: 0, nowMs: () => Date.now() + 2 * EXPORT_MS });
  assert.deepEqual(await keysOf(CHUNKS), []);
  await objects.close();
  return before;
}
