// A node under floods from inside sandboxes and from outside: the latency of /health, and its memory.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { Agent, get } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { startNode, type TestNode } from "@svc/harness/node.ts";
import { Sandbox } from "e2b";
import { floods } from "./floods.ts";
import { peakBytes } from "./process-usage.ts";
import { percentile, type Row, report } from "./report.ts";

const SAMPLES = 300;
const EVERY_MS = 20;
const SETTLE_MS = 1_500;
/** The bound that docs/operations.md states. */
const MEMORY_BOUND_MB = 1024;
const FLOODER = fileURLToPath(new URL("flooder.ts", import.meta.url));
const ABUSER = fileURLToPath(new URL("abuser.ts", import.meta.url));

async function healthTimes(node: TestNode): Promise<number[]> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const times: number[] = [];
  for (let index = 0; index < SAMPLES; index++) {
    const begin = performance.now();
    const status = await new Promise<number>((resolve, reject) => {
      get(`${node.url}/health`, { agent }, (response) => response.resume().once("end", () => resolve(response.statusCode ?? 0))).once("error", reject);
    });
    if (status !== 204 && status !== 200) throw new Error(`/health answered ${status}`);
    times.push(performance.now() - begin);
    await sleep(EVERY_MS);
  }
  agent.destroy();
  return times;
}

const rows: Row[] = [];
const raw: Record<string, number[]> = {};

async function measure(what: string, node: TestNode): Promise<void> {
  await sleep(SETTLE_MS);
  const times = await healthTimes(node);
  process.stdout.write(`${what}: ${percentile(times, 0.99).toFixed(0)} ms\n`);
  raw[what] = times;
  rows.push({
    what: `/health under ${what}: p99`,
    value: percentile(times, 0.99),
    unit: "ms",
    goal: { atMost: 100 },
    samples: SAMPLES,
    note: `p50 ${percentile(times, 0.5).toFixed(1)} ms, slowest ${Math.max(...times).toFixed(0)} ms`,
  });
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, "exit");
  child.kill("SIGKILL");
  await exit;
}

/** Uses runc, where a sandbox floods at the speed of the host's kernel. */
await using node = await startNode({ runtime: "runc" });
await measure("nothing", node);
for (const [what, command] of Object.entries(floods)) {
  const sandbox = await Sandbox.create("base", {
    apiUrl: node.url,
    sandboxUrl: node.url,
    apiKey: node.apiKey,
    timeoutMs: 3_000_000,
    allowInternetAccess: false,
  });
  const argv = [ABUSER, node.url, node.apiKey, sandbox.sandboxId, command.replace("PORT", String(node.port))];
  const client = spawn(process.execPath, argv, { stdio: ["ignore", "pipe", "inherit"], detached: true });
  await once(client.stdout, "data");
  await measure(`${what} from a sandbox`, node);
  await sandbox.kill();
  await ended(client);
}
for (const [what, kind, count] of [
  ["one connection that sends a head byte by byte", "bytes", 1],
  ["16 connections that send heads byte by byte", "bytes", 16],
  ["one connection that pipelines requests", "pipeline", 1],
  ["2,000 connections that send heads slowly", "slow", 2000],
  ["connections that come and go, 100 at a time", "connects", 100],
] as const) {
  const client = spawn(process.execPath, [FLOODER, kind, String(node.port), String(count)], { stdio: ["ignore", "pipe", "inherit"], detached: true });
  await once(client.stdout, "data");
  await measure(what, node);
  await ended(client);
}
rows.push({ what: "the node's memory at its peak", value: peakBytes(node.pid) / 2 ** 20, unit: "MiB", goal: { atMost: MEMORY_BOUND_MB } });
report("sandbox-flood", rows, raw);
