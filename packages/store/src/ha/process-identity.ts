// Identifies this process, so that another one on the same host can prove that it has ended.
import { readFileSync, readlinkSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";

export const processIdentity = z.object({ boot: z.string(), namespace: z.string(), pid: z.number().int().positive(), started: z.string() });
export type ProcessIdentity = z.output<typeof processIdentity>;

const POLL_MS = 2;

/** Returns its state, and its start in ticks since boot; undefined if there is no such process. */
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
 * Resolves with true if the process has certainly ended: it ran under this kernel, and its pid is free, reused or a zombie's. The kernel closes a
 * process's sockets a moment earlier, so this waits for the end.
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
