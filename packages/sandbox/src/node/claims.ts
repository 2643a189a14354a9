// Whose a paused sandbox is before it starts or changes here: one that leaves for another node is waited for, one that others could take is asked for.
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { ListedSandbox } from "@svc/contract/sandbox.ts";
import type { KeyedLock } from "@svc/kit/keyed-lock.ts";
import type { Ownership } from "../cluster/ownership.ts";
import { isPaused, type PausedRecord, type Registry } from "../records/registry.ts";
import type { Sharing } from "../snapshot-transfer/exports.ts";
import type { SnapshotTransfer } from "../snapshot-transfer/open-snapshot-transfer.ts";

export interface Claims {
  /** When no move of it is under way. */
  settled(sandboxID: string): Promise<void>;
  /** Runs `work`, and who would resume it waits meanwhile. @throws SANDBOX_CHANGING_STATE while another move of it is under way. */
  leave<T>(sandboxID: string, work: () => Promise<T>): Promise<T>;
  /** One that is taken over and resumed is on its way until it runs; returns what says that it does, or does not go on. */
  arrive(sandboxID: string): () => void;
  /** For a caller that holds its lock: nobody else takes it from now on. @throws SANDBOX_MOVED, when it is not here any more; ETCD_UNAVAILABLE. */
  keep(sandboxID: string): Promise<void>;
  /** As `keep`; and what is in object storage of it is written anew. */
  withdraw(sandboxID: string): Promise<void>;
  /** Kept for a resume that failed: others may have it again when this node does not serve. */
  stays(sandboxID: string): void;
  /** For what is exported; undefined where this node stands alone. */
  readonly sharing: Sharing | undefined;
  /** On their way from this node or to it. */
  readonly leaving: Pick<ReadonlyMap<string, unknown>, "has" | "keys">;
  /** When it is on its way no longer, if it is. */
  over(sandboxID: string): Promise<void>;
  /** Hears of each that is on its way from now on, and of each that has left, stays or has arrived. */
  watch(onChange: (sandboxID: string, isLeaving: boolean) => void): () => void;
}

export type ClaimsParts = {
  readonly lock: KeyedLock;
  readonly registry: Pick<Registry, "get">;
  readonly ownership: Ownership | undefined;
  readonly listed: (record: PausedRecord) => ListedSandbox;
  /** Made after this. */
  readonly transfer: () => Pick<SnapshotTransfer, "releaseSandbox" | "exports">;
};

export function openClaims({ lock, registry, ownership, listed, transfer }: ClaimsParts): Claims {
  // I37
  const leaving = new Map<string, PromiseWithResolvers<void>>();
  const moves = new Map<string, Promise<unknown>>();
  const watchers = new Set<(sandboxID: string, isLeaving: boolean) => void>();
  const tell = (sandboxID: string, isLeaving: boolean) => {
    for (const watcher of watchers) watcher(sandboxID, isLeaving);
  };

  function begin(sandboxID: string): () => void {
    const over = Promise.withResolvers<void>();
    leaving.set(sandboxID, over);
    tell(sandboxID, true);
    return () => {
      leaving.delete(sandboxID);
      tell(sandboxID, false);
      over.resolve();
    };
  }

  /** What another node has taken is forgotten here at once. */
  async function unlessMoved(sandboxID: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      const { name, details } = asFailure(error);
      if (name === "SANDBOX_MOVED" && isPaused(registry.get(sandboxID))) await transfer().releaseSandbox(sandboxID, String(details["node"]));
      throw error;
    }
  }
  const keep = (sandboxID: string) => (ownership === undefined ? Promise.resolve() : unlessMoved(sandboxID, () => ownership.keep(sandboxID)));

  return {
    async settled(sandboxID) {
      await moves.get(sandboxID)?.catch(() => undefined);
    },
    async leave(sandboxID, work) {
      if (leaving.has(sandboxID)) fail("SANDBOX_CHANGING_STATE", `sandbox '${sandboxID}' is already moving to another node`);
      const end = begin(sandboxID);
      const working = work().finally(() => {
        moves.delete(sandboxID);
        end();
      });
      moves.set(sandboxID, working);
      return working;
    },
    arrive: begin,
    keep,
    async withdraw(sandboxID) {
      await keep(sandboxID);
      await transfer().exports?.outdate(sandboxID);
    },
    stays: (sandboxID) => transfer().exports?.soon(sandboxID),
    sharing: ownership && {
      share: (sandboxID, manifest) =>
        lock.run(sandboxID, async () => {
          const record = registry.get(sandboxID);
          // It ran meanwhile, or has ended.
          if (!isPaused(record) || !manifest.endsWith(`/${record.status.kept.checkpointID}`)) return;
          await unlessMoved(sandboxID, () => ownership.share(sandboxID, manifest, listed(record)));
        }),
      forget: ownership.forget,
    },
    leaving,
    over: async (sandboxID) => leaving.get(sandboxID)?.promise,
    watch(onChange) {
      watchers.add(onChange);
      return () => watchers.delete(onChange);
    },
  };
}
