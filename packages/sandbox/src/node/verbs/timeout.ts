// The deadline of a sandbox; only these calls change it (docs/sandboxes.md).
import { fail } from "@svc/contract/failures.ts";
import type { KeyedLock } from "@svc/kit/keyed-lock.ts";
import type { Report } from "../../observe/open-observe.ts";
import type { Clock } from "../../records/clock.ts";
import { isRunning, type Registry, type RunningRecord } from "../../records/registry.ts";

export type TimeoutParts = {
  readonly maxSeconds: number;
  readonly clock: Clock;
  readonly lock: KeyedLock;
  readonly registry: Pick<Registry, "move" | "owned" | "running">;
  readonly report: Report;
};

export interface Timeouts {
  /** @throws INVALID_REQUEST when `seconds` exceeds sandbox.max_timeout_seconds. */
  check(seconds: number): void;
  set(record: RunningRecord, seconds: number, how: "exactly" | "at least"): void;
  /**
   * Sets the timeout by id: at once if the sandbox runs, else after the state change that is under way.
   * @throws SANDBOX_NOT_FOUND, SANDBOX_PAUSED, SANDBOX_CHANGING_STATE, TOO_MANY_REQUESTS.
   */
  setOf(sandboxID: string, seconds: number, how: "exactly" | "at least"): Promise<void>;
}

export function openTimeouts({ maxSeconds, clock, lock, registry, report }: TimeoutParts): Timeouts {
  const timeouts: Timeouts = {
    check(seconds) {
      if (seconds > maxSeconds) fail("INVALID_REQUEST", `timeout: expected at most ${maxSeconds} seconds (sandbox.max_timeout_seconds), got ${seconds}`);
    },
    set(record, seconds, how) {
      const { claim } = record.status;
      const asked = clock.monotonicMs() + seconds * 1000;
      const deadlineMs = how === "exactly" ? asked : Math.max(asked, claim.deadlineMs);
      if (deadlineMs === claim.deadlineMs) return;
      registry.move(record.sandboxID, { event: "deadline", deadlineMs, timeoutSeconds: how === "exactly" ? seconds : claim.timeoutSeconds });
      report("sandbox.timeout_set", record, { timeoutSeconds: seconds });
    },
    async setOf(sandboxID, seconds, how) {
      const record = registry.owned(sandboxID);
      // A snapshot of a running sandbox also holds the lock; a new deadline need not wait for it.
      if (isRunning(record)) timeouts.set(record, seconds, how);
      else await lock.run(sandboxID, async () => timeouts.set(registry.running(sandboxID), seconds, how));
    },
  };
  return timeouts;
}
