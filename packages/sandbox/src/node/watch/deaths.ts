// Deaths: sandboxes whose first process is gone are ended with the reason, when the watch looks or when a request to one fails.
import { isOwned, isRunning, type Registry } from "../../records/registry.ts";
import type { SandboxRecord } from "../../records/state.ts";
import type { Drivers } from "../supply/drivers.ts";
import type { Ends } from "../supply/end.ts";
import type { Pool } from "../supply/pool.ts";
import type { LimitEvents } from "./limit-events.ts";

/**
 * Kills for memory that a sandbox survived do not explain a later death. The latest kill may be the death itself, so it counts as survived only
 * at the next look.
 */
type MemoryKills = { readonly seen: number; readonly outlived: number };

export type DeathParts = {
  readonly registry: Pick<Registry, "all" | "get" | "owned">;
  readonly drivers: Pick<Drivers, "runtimes">;
  readonly ends: Pick<Ends, "end">;
  readonly pool: Pick<Pool, "drop">;
  readonly limitEvents: LimitEvents;
};

export interface Deaths {
  /** Called by the watch: ends sandboxes that died. */
  look(): void;
  /** Called by the watch, less often: reports limits that took effect in live sandboxes. */
  countLimitHits(): Promise<void>;
  /**
   * Returns the result of `work`. If `work` fails because the sandbox died, and the watch has not noticed yet, the sandbox is ended first.
   * @throws SANDBOX_NOT_FOUND with the reason of the death, as the client would get a moment later; else the failure of `work`.
   */
  orEnded<T>(sandboxID: string, work: () => Promise<T>): Promise<T>;
}

export function openDeaths({ registry, drivers, ends, pool, limitEvents }: DeathParts): Deaths {
  const memoryKills = new Map<string, MemoryKills>();

  /** Ends the sandbox if it died; undefined if it lives or is not running. */
  function endIfDead({ sandboxID, status }: SandboxRecord): Promise<void> | undefined {
    if (status.state !== "running" && status.state !== "warm") return undefined;
    // A record whose driver is missing is here only because its requested end waits for free disk space.
    const runtime = drivers.runtimes.get(status.handle.runtime);
    if (runtime === undefined || runtime.isAlive(status.handle)) return undefined;
    if (status.state === "warm") pool.drop(sandboxID);
    return runtime
      .deathReason(status.handle, memoryKills.get(sandboxID)?.outlived)
      .catch(() => "crashed" as const)
      .then((reason) => ends.end(sandboxID, reason));
  }

  return {
    look() {
      for (const record of registry.all()) void endIfDead(record);
    },
    async countLimitHits() {
      for (const sandboxID of memoryKills.keys()) if (!isRunning(registry.get(sandboxID))) memoryKills.delete(sandboxID);
      for (const record of [...registry.all()]) {
        if (!isRunning(record)) continue;
        const { handle } = record.status;
        const runtime = drivers.runtimes.get(handle.runtime);
        const hits = await runtime?.limitHits(handle).catch(() => undefined);
        // Liveness is checked after the count, so that a death in between keeps its reason.
        if (hits === undefined || runtime?.isAlive(handle) !== true) continue;
        const seen = hits.memoryKills;
        if (seen > 0) memoryKills.set(record.sandboxID, { seen, outlived: memoryKills.get(record.sandboxID)?.seen ?? 0 });
        limitEvents.note(record, hits);
      }
      limitEvents.endRound((sandboxID) => isRunning(registry.get(sandboxID)));
    },
    async orEnded(sandboxID, work) {
      try {
        return await work();
      } catch (error) {
        const record = registry.get(sandboxID);
        if (isOwned(record)) {
          const end = endIfDead(record);
          if (end === undefined) throw error;
          await end;
        }
        // The watch may have ended it first.
        registry.owned(sandboxID);
        // On a full disk the end is not recorded, so the original failure is all there is to report.
        throw error;
      }
    },
  };
}
