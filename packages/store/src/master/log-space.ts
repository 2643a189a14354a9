// Watches the disk of the master's log: a leader whose log is full hands over to a standby that has space, and the log says what a full disk means.
import { asFailure } from "@svc/contract/failures.ts";
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

const LOOK_MS = 200;
/** A standby that did not take the lead is asked again after this long. */
const RETRY_MS = 5_000;

export function watchLogSpace({ native, home, ha, log }: LogSpaceParts): { close(): void } {
  let wasFull = false;
  let askAgainAtMs = 0;
  const timer = setInterval(() => {
    const isFull = coreMetrics(native).logFull === 1;
    if (isFull) handOver();
    if (isFull === wasFull) return;
    wasFull = isFull;
    if (isFull) log.error({ home }, adviceFor(ha()));
    else log.warn({ home }, "the disk of the log has room again: changes are taken");
  }, LOOK_MS);
  timer.unref();

  /** A standby in sync has written all that was acknowledged, so its own disk had space until now. */
  function handOver(): void {
    const several = ha();
    const to = several?.successor;
    if (several === undefined || to === undefined || performance.now() < askAgainAtMs) return;
    askAgainAtMs = performance.now() + RETRY_MS;
    several.handOver(to).catch((error: unknown) => {
      log.error({ to, reason: asFailure(error).message }, `the disk of the log is full, and ${to} did not take the lead; it is asked again`);
    });
  }

  return { close: () => clearInterval(timer) };
}

function adviceFor(ha: Ha | undefined): string {
  const full = "the disk of the log is full: changes are refused (507), reads continue";
  const role = ha?.gauges();
  if (role === undefined) return `${full}; make room below the home`;
  if (role.isLeader !== 1) return "the disk of this standby's log is full: it cannot keep what the leader sends; make room below the home";
  if (role.inSync === 0) return `${full}. This master continues to lead, because no standby is in sync: make room below the home`;
  return "the disk of the log is full: the lead goes to a standby in sync; make room below the home, so that this master can follow";
}
