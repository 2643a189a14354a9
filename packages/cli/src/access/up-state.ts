// The file $SVC_HOME/up.json, in which `svc up` records its processes, and checks whether these are still alive.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { removeStateFile, writeStateFile } from "@svc/contract/state-file.ts";

/** A pid alone may be reused; together with its start time (clock ticks since boot) it identifies one process. */
export type ProcessName = { readonly pid: number; readonly startTicks: number };
export type UpServer = ProcessName & { readonly name: string; readonly url: string };
export type UpState = ProcessName & {
  readonly startedAt: string;
  /** The servers that have been ready, in the order of programs.ts. */
  readonly servers: readonly UpServer[];
  /** Processes that are not ready yet; they are recorded so that the next `up` can end them if this one is killed. */
  readonly starting?: readonly ProcessName[];
  /** true once all servers have accepted requests. */
  readonly isReady: boolean;
};

function statePath(home: string): string {
  return join(home, "up.json");
}

export function readUpState(home: string): UpState | undefined {
  try {
    const state = JSON.parse(readFileSync(statePath(home), "utf8")) as UpState;
    return typeof state.pid === "number" && Array.isArray(state.servers) ? state : undefined;
  } catch {
    return undefined;
  }
}

/** Returns false if the disk is full. */
export function writeUpState(home: string, state: UpState): boolean {
  return writeStateFile(statePath(home), `${JSON.stringify(state, null, 2)}\n`);
}

export function removeUpState(home: string): void {
  removeStateFile(statePath(home));
}

/** Returns the clock ticks at which the process started; undefined if it does not exist or is a zombie. */
export function startTicksOf(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The second field is the program's name in parentheses, which may contain any characters.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" ? undefined : Number(fields[19]);
  } catch {
    return undefined;
  }
}

export function isAlive({ pid, startTicks }: ProcessName): boolean {
  return startTicksOf(pid) === startTicks;
}

const POLL_MS = 50;

/** Sends the signal and waits for the end; returns false if the process is still alive after `boundMs`. */
export async function endProcess(target: ProcessName, signal: NodeJS.Signals, boundMs: number): Promise<boolean> {
  if (!isAlive(target)) return true;
  try {
    process.kill(target.pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return true;
    throw error;
  }
  for (let waitedMs = 0; waitedMs < boundMs; waitedMs += POLL_MS) {
    if (!isAlive(target)) return true;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  return !isAlive(target);
}
