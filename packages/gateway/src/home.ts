// The gateway's home, a folder that must not be a node's home, and the start ticks that identify this process in its state file.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Only a node's home has this database. */
export function isNodeHome(home: string): boolean {
  return existsSync(join(home, "sandboxes.db"));
}

/** Returns the clock ticks from boot to the start of a process; together with the pid they identify a process uniquely. */
export function startTicks(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]);
}
