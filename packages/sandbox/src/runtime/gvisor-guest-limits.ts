// The limits that gVisor's kernel enforces inside a sandbox: its input and its report.
//
// All programs of a sandbox are one process to the host's kernel, which could only kill them together. So gVisor's own kernel kills or refuses
// the program that exceeds a limit; the control group's limit is a little higher, to cover the moments until it does.
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { keyedValue } from "./cgroup-layout.ts";
import type { LimitHits, Limits } from "./runtime.ts";

// DIRECTORY/guest-limits.json   read by runsc when it starts the kernel (setup/runsc/patches)
// DIRECTORY/limit-hits          lines of NAME VALUE, written by the kernel

const LIMITS = "guest-limits.json";
const HITS = "limit-hits";
const BYTES_PER_MB = 1024 * 1024;
/** Memory that programs can allocate between two checks of the kernel inside, 10 ms apart, on a busy host. */
const LEAST_HEADROOM_MB = 128;
const HEADROOM_PART = 4;

/** Returns the limit at which the host's kernel kills the whole sandbox. */
export function hardMemoryBytes({ memoryMB }: Pick<Limits, "memoryMB">): number {
  return (memoryMB + Math.max(LEAST_HEADROOM_MB, Math.ceil(memoryMB / HEADROOM_PART))) * BYTES_PER_MB;
}

/** `files` are the host's accounting files of the control group's memory; with `filesOnly` a restore accepts any processor of this architecture. */
export async function writeGuestLimits(
  directory: string,
  limits: Limits,
  files: { readonly usage: string; readonly stat: string },
  filesOnly: boolean,
): Promise<void> {
  const content = {
    memoryBytes: limits.memoryMB * BYTES_PER_MB,
    hardMemoryBytes: hardMemoryBytes(limits),
    tasks: limits.pids,
    usageFile: files.usage,
    statFile: files.stat,
    reportFile: join(directory, HITS),
    filesOnly,
  };
  await writeFile(join(directory, LIMITS), JSON.stringify(content));
}

/** Returns zeros where the sandbox's kernel enforces no limits. */
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
