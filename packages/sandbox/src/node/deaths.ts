// Deaths: sandboxes whose first process is gone are ended with the reason, when the watch looks or when something asked of one fails.
import { isOwned, isRunning, type Registry } from "../records/registry.ts";
import type { SandboxRecord } from "../records/state.ts";
import type { Drivers } from "./drivers.ts";
import type { Ends } from "./end.ts";
import type { LimitEvents } from "./limit-events.ts";
import type { Pool } from "./pool.ts";

/** Kills for memory that a sandbox outlived are no reason of a later death. One just seen may be its death: it counts a look later. */
type MemoryKills = { readonly seen: number; readonly outlived: number };

export type DeathParts = {
  readonly registry: Pick<Registry, "all" | "get" | "owned">;
  readonly drivers: Pick<Drivers, "runtimes">;
  readonly ends: Pick<Ends, "end">;
  readonly pool: Pick<Pool, "drop">;
  readonly limitEvents: LimitEvents;
};

export interface Deaths {
  /** For the watch: ends what died. */
  look(): void;
  /** For the watch, less often: which limits took effect in sandboxes that live. */
  countLimitHits(): Promise<void>;
  /**
   * What `work` returns. Where it fails because the sandbox died, and the watch has not looked since, the sandbox is ended first.
   * @throws SANDBOX_NOT_FOUND with the reason then, as a moment later; else what `work` threw.
   */
  orEnded<T>(sandboxID: string, work: () => Promise<T>): Promise<T>;
}

export function openDeaths({ registry, drivers, ends, pool, limitEvents }: DeathParts): Deaths {
  const memoryKills = new Map<string, MemoryKills>();

  /** Its end where it died; undefined where it lives, or is not running. */
  function endIfDead({ sandboxID, status }: SandboxRecord): Promise<void> | undefined {
    if (status.state !== "running" && status.state !== "warm") return undefined;
    // Without its driver its end was asked for, and waits for room on the disk.
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
        // Asked after the count: a death in between keeps its reason.
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
        // The watch may have been faster.
        registry.owned(sandboxID);
        // A full disk did not take its end: the reason of the failure is all there is to say.
        throw error;
      }
    },
  };
}
