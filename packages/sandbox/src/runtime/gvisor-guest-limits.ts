// The limits that gVisor's kernel keeps inside a sandbox: what it is given, and what it reports.
//
// All programs of a sandbox are one process of the host to the host's kernel, which could only end them together. So gVisor's own
// kernel ends or refuses the program that asks, and the control group's limit is a little higher, for the moments until it has.
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { keyedValue } from "./cgroup-layout.ts";
import type { LimitHits, Limits } from "./runtime.ts";

// DIRECTORY/guest-limits.json   read by runsc when it starts the kernel (setup/runsc/patches)
// DIRECTORY/limit-hits          lines of NAME VALUE, written by the kernel

const LIMITS = "guest-limits.json";
const HITS = "limit-hits";
const BYTES_PER_MB = 1024 * 1024;
/** What programs can take between two looks of the kernel inside, a hundredth of a second each, on a busy host. */
const LEAST_HEADROOM_MB = 64;
const HEADROOM_PART = 8;

/** Where the host's kernel would end the sandbox. */
export function hardMemoryBytes({ memoryMB }: Pick<Limits, "memoryMB">): number {
  return (memoryMB + Math.max(LEAST_HEADROOM_MB, Math.ceil(memoryMB / HEADROOM_PART))) * BYTES_PER_MB;
}

/** `files`: what the host says of the control group's memory. */
export async function writeGuestLimits(directory: string, limits: Limits, files: { readonly usage: string; readonly stat: string }): Promise<void> {
  const content = {
    memoryBytes: limits.memoryMB * BYTES_PER_MB,
    hardMemoryBytes: hardMemoryBytes(limits),
    tasks: limits.pids,
    usageFile: files.usage,
    statFile: files.stat,
    reportFile: join(directory, HITS),
  };
  await writeFile(join(directory, LIMITS), JSON.stringify(content));
}

/** None where the sandbox runs a kernel that keeps no limits. */
export async function guestLimitHits(directory: string): Promise<LimitHits> {
  const text = await readFile(join(directory, HITS), "utf8").catch(() => "");
  const program = /^program (\S+)$/m.exec(text)?.[1];
  return {
    memoryKills: keyedValue(text, "memory_kills"),
    memoryRefusals: keyedValue(text, "memory_refusals"),
    taskRefusals: keyedValue(text, "task_refusals"),
    ...(program === undefined ? {} : { program }),
  };
}
