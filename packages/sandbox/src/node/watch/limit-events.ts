// Events about limits that took effect inside a sandbox that continues to run: processes killed for memory, memory and forks refused.
import type { Report } from "../../observe/open-observe.ts";
import type { Clock } from "../../records/clock.ts";
import type { RunningRecord } from "../../records/registry.ts";
import { startTicksOf } from "../../runtime/process.ts";
import type { LimitHits } from "../../runtime/runtime.ts";

/** A fork bomb is refused without end; this limits its events to one per period. */
const QUIET_MS = 30_000;

type Counts = Pick<LimitHits, "memoryKills" | "memoryRefusals" | "taskRefusals">;
type Seen = { readonly life: string; reported: Counts; memoryAtMs: number; tasksAtMs: number };

const none: Counts = { memoryKills: 0, memoryRefusals: 0, taskRefusals: 0 };

export interface LimitEvents {
  /** Reports the hits since the last call. */
  note(record: RunningRecord, hits: LimitHits): void;
  /** Forgets sandboxes that no longer run. */
  endRound(isKept: (sandboxID: string) => boolean): void;
}

export function openLimitEvents({ report, clock }: { readonly report: Report; readonly clock: Clock }): LimitEvents {
  const seen = new Map<string, Seen>();
  const nodeStartTicks = startTicksOf(process.pid) ?? 0;

  return {
    note(record, hits) {
      const { sandboxID, status } = record;
      const life = `${status.handle.pid}:${status.handle.pidStartTicks}`;
      let each = seen.get(sandboxID);
      if (each?.life !== life) {
        // An earlier process of the node may have reported what happened in a sandbox that this one took over.
        const isTakenOver = status.handle.pidStartTicks < nodeStartTicks;
        each = { life, reported: isTakenOver ? hits : none, memoryAtMs: Number.NEGATIVE_INFINITY, tasksAtMs: Number.NEGATIVE_INFINITY };
        seen.set(sandboxID, each);
      }
      const { reported } = each;
      const nowMs = clock.monotonicMs();
      const [killed, refused, tasks] = [
        hits.memoryKills - reported.memoryKills,
        hits.memoryRefusals - reported.memoryRefusals,
        hits.taskRefusals - reported.taskRefusals,
      ];
      if ((killed > 0 || refused > 0) && nowMs - each.memoryAtMs >= QUIET_MS) {
        const program = killed > 0 && hits.program !== undefined ? { program: hits.program } : {};
        report("sandbox.limit_reached", record, { limit: "memory", killed, refused, ...program });
        each.memoryAtMs = nowMs;
        each.reported = { ...each.reported, memoryKills: hits.memoryKills, memoryRefusals: hits.memoryRefusals };
      }
      if (tasks > 0 && nowMs - each.tasksAtMs >= QUIET_MS) {
        report("sandbox.limit_reached", record, { limit: "processes", refused: tasks });
        each.tasksAtMs = nowMs;
        each.reported = { ...each.reported, taskRefusals: hits.taskRefusals };
      }
    },
    endRound(isKept) {
      for (const sandboxID of seen.keys()) if (!isKept(sandboxID)) seen.delete(sandboxID);
    },
  };
}
