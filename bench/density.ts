// Many idle sandboxes at once: the memory of each, by its cgroup and by the host's free memory, and the latency of commands among them.
import { existsSync, readFileSync, realpathSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { startNode } from "@svc/harness/node.ts";
import { parentNameOf } from "@svc/sandbox/runtime/cgroup.ts";
import { Sandbox } from "e2b";
import { median, percentile, type Row } from "./report.ts";

/** How long the sandboxes stay idle before their memory is read. */
const IDLE_MS = 150_000;
const COMMANDS = 120;
const WARM_UP = 20;

export type Crowd = { readonly rows: readonly Row[]; readonly raw: Readonly<Record<string, unknown>> };

/** Starts `count` idle sandboxes, envd included; with `commandGoalMs` it also measures commands in one of them while all run. */
export async function crowd(count: number, commandGoalMs?: number): Promise<Crowd> {
  await using node = await startNode({ runtime: "gvisor" });
  const headers = { "x-api-key": node.apiKey };
  const create = () => fetch(`${node.url}/v2/sandboxes`, { method: "POST", headers, body: JSON.stringify({ templateID: "base", timeout: 3000 }) });
  const statuses = await Promise.all(Array.from({ length: count }, async () => (await create()).status));
  if (statuses.some((status) => status !== 201)) throw new Error(`creates answered ${[...new Set(statuses)]}`);
  await sleep(IDLE_MS);
  const cgroup = cgroupBytes(node.home);
  const withThem = availableBytes();
  const ids = (await (await fetch(`${node.url}/sandboxes`, { headers })).json()) as { sandboxID: string }[];
  const commands = commandGoalMs === undefined ? [] : await commandTimes(node.url, node.apiKey, ids[0]?.sandboxID ?? "");
  await Promise.all(ids.map(({ sandboxID }) => fetch(`${node.url}/sandboxes/${sandboxID}`, { method: "DELETE", headers })));
  await sleep(3_000);
  const byHost = (availableBytes() - withThem) / count / 1e6;
  const rows: Row[] = [];
  if (cgroup !== undefined) rows.push({ what: `${count} idle sandboxes, each by cgroup`, value: cgroup / count / 1e6, unit: "MB", goal: { atMost: 20 } });
  rows.push({ what: `${count} idle sandboxes, each by MemAvailable`, value: byHost, unit: "MB", goal: { atMost: 20 } });
  if (commandGoalMs !== undefined) {
    const note = `p99 ${percentile(commands, 0.99).toFixed(1)} ms`;
    rows.push({
      what: `a command among ${count} idle sandboxes: p50`,
      value: median(commands),
      unit: "ms",
      goal: { atMost: commandGoalMs },
      samples: COMMANDS,
      note,
    });
  }
  return { rows, raw: { [`density${count}`]: { count, cgroup, byHost, commandMs: commands } } };
}

async function commandTimes(url: string, apiKey: string, sandboxID: string): Promise<number[]> {
  const sandbox = await Sandbox.connect(sandboxID, { apiUrl: url, sandboxUrl: url, apiKey });
  const times: number[] = [];
  for (let index = 0; index < COMMANDS + WARM_UP; index++) {
    const begin = performance.now();
    await sandbox.commands.run("echo hi");
    times.push(performance.now() - begin);
  }
  return times.slice(WARM_UP);
}

/** Returns all memory that the kernel charges to this home's sandboxes, page cache included; cgroup v1, otherwise v2. */
export function cgroupBytes(home: string): number | undefined {
  const parent = parentNameOf(realpathSync(home));
  const files = [`/sys/fs/cgroup/memory/${parent}/memory.usage_in_bytes`, `/sys/fs/cgroup/${parent}/memory.current`];
  const file = files.find((path) => existsSync(path));
  return file === undefined ? undefined : Number(readFileSync(file, "utf8"));
}

export function availableBytes(): number {
  return Number(/MemAvailable:\s+(\d+)/.exec(readFileSync("/proc/meminfo", "utf8"))?.[1]) * 1024;
}
