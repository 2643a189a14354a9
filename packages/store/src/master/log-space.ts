// Logs when the disk of the master's log is full, what that means for a leader, and when it has space again.
import type { Log } from "@svc/kit/log.ts";
import type { Ha } from "../ha/ha.ts";
import { coreMetrics, type NativeMaster } from "./native.ts";

export type LogSpaceParts = {
  readonly native: NativeMaster;
  readonly home: string;
  /** Returns undefined for a master that is alone. */
  readonly ha: () => Ha | undefined;
  readonly log: Log;
};

const LOOK_MS = 1_000;

export function watchLogSpace({ native, home, ha, log }: LogSpaceParts): { close(): void } {
  let wasFull = false;
  const timer = setInterval(() => {
    const isFull = coreMetrics(native).logFull === 1;
    if (isFull === wasFull) return;
    wasFull = isFull;
    if (isFull) log.error({ home }, adviceFor(ha()));
    else log.warn({ home }, "the disk of the log has room again: changes are taken");
  }, LOOK_MS);
  timer.unref();
  return { close: () => clearInterval(timer) };
}

/** A leader does not hand over because of a full disk: the operator has to free space, or stop it. */
function adviceFor(ha: Ha | undefined): string {
  const full = "the disk of the log is full: changes are refused (507), reads continue";
  const role = ha?.gauges();
  if (role === undefined) return `${full}; make room below the home`;
  if (role.isLeader !== 1) return "the disk of this standby's log is full: it cannot keep what the leader sends; make room below the home";
  if (role.inSync === 0) return `${full}. This master continues to lead, and no standby is in sync: make room below the home`;
  return `${full}. This master continues to lead, though ${role.inSync} standby is in sync: make room below the home, or stop this master, and the standby leads if it has room`;
}
