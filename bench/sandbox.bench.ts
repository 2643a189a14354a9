// Sandboxes with the unmodified E2B JS SDK: create to first output, warm commands, bursts, density.
import { setTimeout as sleep } from "node:timers/promises";
import { startNode, type TestNode } from "@svc/harness/node.ts";
import { Sandbox } from "e2b";
import { crowd } from "./density.ts";
import { median, percentile, type Row, report } from "./report.ts";

const SEQUENTIAL = 100;
const POOL_READY_MS = 180_000;
const rows: Row[] = [];
const raw: Record<string, unknown> = {};

function connection(node: TestNode) {
  return { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey };
}

/** Waits until the pool of `base` holds `count` sandboxes. */
async function poolReady(node: TestNode, count: number): Promise<void> {
  const end = performance.now() + POOL_READY_MS;
  for (;;) {
    const text = await (await fetch(`${node.url}/metrics`)).text();
    const ready = Number(/^svc_node_pool_sandboxes\{template="base"\} (\d+)/m.exec(text)?.[1] ?? 0);
    if (ready >= count) return;
    if (performance.now() > end) throw new Error(`the pool has ${ready} of ${count} after ${POOL_READY_MS} ms`);
    await sleep(200);
  }
}

async function createToOutput(node: TestNode): Promise<{ sandbox: Sandbox; ms: number }> {
  const begin = performance.now();
  const sandbox = await Sandbox.create("base", { ...connection(node), timeoutMs: 600_000 });
  const result = await sandbox.commands.run("echo hi");
  const ms = performance.now() - begin;
  if (result.stdout !== "hi\n") throw new Error(`echo hi gave ${JSON.stringify(result.stdout)}`);
  return { sandbox, ms };
}

async function sequential(node: TestNode, count: number): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < count; i++) {
    const { sandbox, ms } = await createToOutput(node);
    times.push(ms);
    await sandbox.kill();
  }
  return times;
}

async function withFullPool(): Promise<void> {
  await using node = await startNode({
    runtime: "gvisor",
    flags: [`--pool.templates=base=${SEQUENTIAL}`, "--pool.refill_concurrency=2", "--network.pool_size=4"],
  });
  await poolReady(node, SEQUENTIAL);
  await sleep(1000);
  const times = await sequential(node, SEQUENTIAL);
  raw["createFromPoolMs"] = times;
  rows.push({ what: "create to first output, pool of 100 full: p50", value: median(times), unit: "ms", goal: { atMost: 45 }, samples: times.length });
  rows.push({
    what: "create to first output, pool of 100 full: p99",
    value: percentile(times, 0.99),
    unit: "ms",
    goal: { atMost: 200 },
    samples: times.length,
  });
}

async function sustained(): Promise<void> {
  await using node = await startNode({ runtime: "gvisor", flags: ["--pool.templates=base=8", "--network.pool_size=4"] });
  await poolReady(node, 8);
  const begin = performance.now();
  const times = await sequential(node, 60);
  raw["createSustainedMs"] = times;
  rows.push({
    what: "sustained creates with a pool of 8",
    value: (60 * 1000) / (performance.now() - begin),
    unit: "/s",
    goal: { atLeast: 9 },
    samples: 60,
    note: `p50 ${median(times).toFixed(0)} ms, kill included in the rate`,
  });
}

async function withoutPool(): Promise<void> {
  await using node = await startNode({ runtime: "gvisor" });
  const times = await sequential(node, 25);
  raw["createColdMs"] = times;
  rows.push({ what: "create to first output, no pool: p50", value: median(times.slice(5)), unit: "ms", goal: { atMost: 170 }, samples: 20 });
}

async function burst(): Promise<void> {
  await using node = await startNode({ runtime: "gvisor", flags: ["--pool.templates=base=8"] });
  await poolReady(node, 8);
  const begin = performance.now();
  const results = await Promise.allSettled(Array.from({ length: 100 }, () => createToOutput(node)));
  const failed = results.filter((result) => result.status === "rejected");
  rows.push({
    what: "100 creates at once: failures",
    value: failed.length,
    unit: "",
    goal: { atMost: 0 },
    note: `all answered after ${((performance.now() - begin) / 1000).toFixed(1)} s ${failed[0]?.reason ?? ""}`,
  });
}

async function warmCommand(runtime: "gvisor" | "runc", goal: number): Promise<void> {
  await using node = await startNode({ runtime });
  const { sandbox } = await createToOutput(node);
  const times: number[] = [];
  for (let i = 0; i < 120; i++) {
    const begin = performance.now();
    await sandbox.commands.run("echo hi");
    times.push(performance.now() - begin);
  }
  raw[`command_${runtime}_ms`] = times;
  rows.push({
    what: `warm command on ${runtime}: p50`,
    value: median(times.slice(20)),
    unit: "ms",
    goal: { atMost: goal },
    samples: 100,
    note: `p99 ${percentile(times.slice(20), 0.99).toFixed(1)} ms`,
  });
}

await withFullPool();
await sustained();
await withoutPool();
await burst();
const idle = await crowd(100);
rows.push(...idle.rows);
Object.assign(raw, idle.raw);
await warmCommand("gvisor", 20);
await warmCommand("runc", 7);
report("sandbox", rows, raw);
