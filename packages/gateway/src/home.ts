// The gateway's home: a folder for its pid and URL, which must not be a node's, and what tells this process from a later one.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** A node's home has its own file of that name. */
export function isNodeHome(home: string): boolean {
  return existsSync(join(home, "sandboxes.db"));
}

/** Clock ticks from the boot to the start of a process: with the pid it names one process for good. */
export function startTicks(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]);
}
