// The gateway and the store's master, service and admin server while ordinary clients try to block them: the latency of /health, and their
// memory.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { startGateway } from "@svc/harness/gateway.ts";
import { startNode } from "@svc/harness/node.ts";
import { until } from "@svc/harness/until.ts";
import { startCluster } from "../packages/store-admin/test/cluster.ts";
import { peakBytes } from "./process-usage.ts";
import { percentile, type Row, report } from "./report.ts";

const SAMPLES = 200;
const EVERY_MS = 20;
const SETTLE_MS = 1_500;
const FLOODER = fileURLToPath(new URL("flooder.ts", import.meta.url));

type Flood = { readonly what: string; readonly kind: string; readonly count: number; readonly port?: number };
/** `memoryMB` is the limit of memory under such clients that the guide states. */
type Target = {
  readonly name: string;
  readonly url: string;
  readonly pid: number;
  readonly path: string;
  readonly memoryMB: number;
  readonly floods: readonly Flood[];
};

const overHTTP: readonly Flood[] = [
  { what: "one connection that sends a head byte by byte", kind: "bytes", count: 1 },
  { what: "16 connections that pipeline requests", kind: "pipeline", count: 16 },
  { what: "2,000 connections that send heads slowly", kind: "slow", count: 2000 },
  { what: "200 clients that send half of 8 MiB", kind: "halves", count: 200 },
  { what: "connections that come and go, 100 at a time", kind: "connects", count: 100 },
];
const overRPC = (port: number): Flood[] => [
  { what: "2,000 RPC connections that send heads slowly", kind: "rpcSlow", count: 2000, port },
  { what: "100 RPC connections that send half of 64 MiB", kind: "rpcHalves", count: 100, port },
  { what: "16 RPC connections that pipeline requests", kind: "rpcPipeline", count: 16, port },
];

const rows: Row[] = [];
const raw: Record<string, number[]> = {};

/** Each check uses a new connection, so that a server that accepts no more is noticed. */
async function healthMs(url: string): Promise<number> {
  const begin = performance.now();
  const response = await fetch(`${url}/health`, { headers: { connection: "close" }, signal: AbortSignal.timeout(10_000) });
  await response.arrayBuffer();
  if (!response.ok) throw new Error(`/health answered ${response.status}`);
  return performance.now() - begin;
}

async function measure(what: string, url: string): Promise<void> {
  const times: number[] = [];
  for (let index = 0; index < SAMPLES; index++) {
    times.push(await healthMs(url));
    await sleep(EVERY_MS);
  }
  process.stdout.write(`${what}: ${percentile(times, 0.99).toFixed(1)} ms\n`);
  raw[what] = times;
  const note = `p50 ${percentile(times, 0.5).toFixed(1)} ms, slowest ${Math.max(...times).toFixed(0)} ms`;
  rows.push({ what: `${what}: /health p99`, value: percentile(times, 0.99), unit: "ms", goal: { atMost: 100 }, samples: SAMPLES, note });
}

async function ended(child: ChildProcess): Promise<void> {
  const exit = once(child, "exit");
  child.kill("SIGKILL");
  await exit;
}

async function flood({ name, url, pid, path, memoryMB, floods }: Target): Promise<void> {
  await until("a first answer", () => healthMs(url).catch(() => undefined));
  await measure(`${name}, nothing`, url);
  for (const { what, kind, count, port } of floods) {
    const client = spawn(process.execPath, [FLOODER, kind, String(port ?? new URL(url).port), String(count), path], { stdio: ["ignore", "pipe", "inherit"] });
    await once(client.stdout, "data");
    await sleep(SETTLE_MS);
    try {
      await measure(`${name}, ${what}`, url);
    } finally {
      await ended(client);
    }
  }
  rows.push({ what: `${name}: memory at its peak`, value: peakBytes(pid) / 1e6, unit: "MB", goal: { atMost: memoryMB } });
}

{
  await using node = await startNode({ runtime: "bubblewrap" });
  await using gateway = await startGateway({ nodes: [node.url], apiKey: node.apiKey });
  await flood({ name: "gateway", url: gateway.url, pid: gateway.pid, path: "/v2/sandboxes", memoryMB: 1024, floods: overHTTP });
}
await using cluster = await startCluster();
const service = await cluster.addService("flooded");
const rpcPort = Number(cluster.rpc.split(":")[1]);
const { master, admin } = cluster;
await flood({ name: "store master", url: master.url, pid: master.pid, path: "/query_key", memoryMB: 1300, floods: [...overHTTP, ...overRPC(rpcPort)] });
await flood({ name: "store service", url: service.url, pid: service.pid, path: "/api/put", memoryMB: 1024, floods: overHTTP });
await flood({ name: "store admin server", url: admin.url, pid: admin.pid, path: "/v1/route-migrations", memoryMB: 1024, floods: overHTTP });
report("server-flood", rows, raw);
