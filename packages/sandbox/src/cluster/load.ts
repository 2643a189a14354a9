// Reads a node's load and free capacity each time a gateway is notified.
import { readFileSync, statfsSync } from "node:fs";
import { cpus } from "node:os";
import type { NodeLoad } from "@svc/contract/cluster.ts";
import type { StreamParts } from "./stream.ts";

export type LoadParts = {
  readonly home: string;
  readonly capacity: { readonly onTheirWay: number };
  readonly isDraining: () => boolean;
  readonly clockSkewMs: () => number | undefined;
  readonly admission: { readonly waiting: number };
  readonly previews: { readonly changes: number };
  readonly pool: { ready(): ReadonlyMap<string, number> };
  readonly usage: { totals(): { readonly memoryBytes: number; readonly memoryLimitBytes: number; readonly cpuLimit: number } };
};

/** The interval at which values are read that change slowly or cost a system call each. */
const FRESH_MS = 1_000;

type Host = Pick<NodeLoad, "disk" | "cpuPercent"> & { readonly totalBytes: number; readonly availableBytes: number };

export function openLoad(
  { home, capacity, isDraining, clockSkewMs, admission, pool, usage, previews }: LoadParts,
  nowMs: () => number = () => performance.now(),
): StreamParts["load"] {
  let host: Host | undefined;
  let readAtMs = 0;
  let ticks = readTicks();

  function readHost(): Host {
    const before = ticks;
    ticks = readTicks();
    const spent = ticks.all - before.all;
    const { bsize, blocks, bfree } = statfsSync(home);
    return {
      ...readMemory(),
      disk: { totalBytes: bsize * blocks, usedBytes: bsize * (blocks - bfree) },
      cpuPercent: spent <= 0 ? 0 : Math.round(((spent - (ticks.idle - before.idle)) / spent) * 100),
    };
  }

  return () => {
    const now = nowMs();
    if (host === undefined || now - readAtMs > FRESH_MS) {
      host = readHost();
      readAtMs = now;
    }
    const { totalBytes, availableBytes, disk, cpuPercent } = host;
    const { memoryBytes, memoryLimitBytes, cpuLimit } = usage.totals();
    return {
      starting: capacity.onTheirWay,
      waiting: admission.waiting,
      pools: Object.fromEntries(pool.ready()),
      memory: { totalBytes, availableBytes, reservedBytes: memoryLimitBytes, usedBytes: memoryBytes },
      allocatedCPU: cpuLimit,
      cpuPercent,
      disk,
      isDraining: isDraining(),
      clockSkewMs: clockSkewMs(),
      previewChanges: previews.changes,
    };
  };
}

/** Reads the kernel's estimate of memory available without swapping, in which pages shared by copies count once. */
function readMemory(): { totalBytes: number; availableBytes: number } {
  const text = readFileSync("/proc/meminfo", "utf8");
  const bytesOf = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(text)?.[1] ?? 0) * 1024;
  return { totalBytes: bytesOf("MemTotal"), availableBytes: bytesOf("MemAvailable") };
}

function readTicks(): { all: number; idle: number } {
  let all = 0;
  let idle = 0;
  for (const { times } of cpus()) {
    all += times.user + times.nice + times.sys + times.idle + times.irq;
    idle += times.idle;
  }
  return { all, idle };
}
