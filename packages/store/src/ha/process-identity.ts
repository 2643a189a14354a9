// Which process this is, so that another one on the same host can prove that it has ended.
import { readFileSync, readlinkSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";

export const processIdentity = z.object({ boot: z.string(), namespace: z.string(), pid: z.number().int().positive(), started: z.string() });
export type ProcessIdentity = z.output<typeof processIdentity>;

const POLL_MS = 2;

/** Its state, and when it began in ticks since the boot; undefined where there is no such process. */
function statOf(pid: number): { state: string; started: string } | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "latin1");
    const [state = "", ...rest] = text.slice(text.lastIndexOf(")") + 2).split(" ");
    return { state, started: rest[18] ?? "" };
  } catch {
    return undefined;
  }
}

export function ownIdentity(): ProcessIdentity {
  const read = (path: string) => readFileSync(path, "latin1").trim();
  return {
    boot: read("/proc/sys/kernel/random/boot_id"),
    namespace: readlinkSync("/proc/self/ns/pid"),
    pid: process.pid,
    started: statOf(process.pid)?.started ?? "",
  };
}

/**
 * Whether the process has ended for certain: it ran under this kernel, and its number is free, another's, or a zombie's. Its kernel
 * closes its sockets a moment before that, so it is waited for.
 */
export async function hasEnded(other: ProcessIdentity, boundMs: number): Promise<boolean> {
  const own = ownIdentity();
  if (other.boot !== own.boot || other.namespace !== own.namespace || other.pid === own.pid) return false;
  const endMs = performance.now() + boundMs;
  do {
    const found = statOf(other.pid);
    if (found === undefined || found.started !== other.started || found.state === "Z" || found.state === "X") return true;
    await sleep(POLL_MS);
  } while (performance.now() < endMs);
  return false;
}
