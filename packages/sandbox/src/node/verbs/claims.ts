// Makes sure that a paused sandbox is this node's before it starts or changes here: waits for a move under way, and asks etcd where others may own it.
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { ListedSandbox } from "@svc/contract/sandbox.ts";
import type { KeyedLock } from "@svc/kit/keyed-lock.ts";
import type { Ownership } from "../../cluster/ownership.ts";
import { isPaused, type PausedRecord, type Registry } from "../../records/registry.ts";
import type { Sharing } from "../../snapshot-transfer/exports.ts";
import type { SnapshotTransfer } from "../../snapshot-transfer/open-snapshot-transfer.ts";

export interface Claims {
  /** Resolves when no move of the sandbox is under way. */
  settled(sandboxID: string): Promise<void>;
  /** Runs `work` as a move; resumes of the sandbox wait for it. @throws SANDBOX_CHANGING_STATE while another move of it is under way. */
  leave<T>(sandboxID: string, work: () => Promise<T>): Promise<T>;
  /** Marks a sandbox as moving while it is taken over and resumed here; the returned function ends that, whether or not it runs. */
  arrive(sandboxID: string): () => void;
  /** Prevents takeovers from now on; the caller holds the sandbox's lock. @throws SANDBOX_MOVED when another node owns it; ETCD_UNAVAILABLE. */
  keep(sandboxID: string): Promise<void>;
  /** As `keep`, and marks the copy in object storage as outdated, since the record is about to change. */
  withdraw(sandboxID: string): Promise<void>;
  /** After a resume that failed: exports the sandbox again, so that others may take it over while this node does not serve. */
  stays(sandboxID: string): void;
  /** The etcd records of exported sandboxes; undefined where this node runs alone. */
  readonly sharing: Sharing | undefined;
  /** The sandboxes that are moving from this node or to it. */
  readonly leaving: Pick<ReadonlyMap<string, unknown>, "has" | "keys">;
  /** Resolves when the move of the sandbox has ended; at once if there is none. */
  over(sandboxID: string): Promise<void>;
  /** Calls `onChange` when a move of a sandbox begins and when it ends. Returns the function that unsubscribes. */
  watch(onChange: (sandboxID: string, isLeaving: boolean) => void): () => void;
}

export type ClaimsParts = {
  readonly lock: KeyedLock;
  readonly registry: Pick<Registry, "get">;
  readonly ownership: Ownership | undefined;
  readonly listed: (record: PausedRecord) => ListedSandbox;
  /** Opened after the claims, so it is read at the time of use. */
  readonly transfer: () => Pick<SnapshotTransfer, "releaseSandbox" | "exports">;
};

export function openClaims({ lock, registry, ownership, listed, transfer }: ClaimsParts): Claims {
  // I37
  const leaving = new Map<string, PromiseWithResolvers<void>>();
  const moves = new Map<string, Promise<unknown>>();
  const watchers = new Set<(sandboxID: string, isLeaving: boolean) => void>();
  const notify = (sandboxID: string, isLeaving: boolean) => {
    for (const watcher of watchers) watcher(sandboxID, isLeaving);
  };

  function begin(sandboxID: string): () => void {
    const over = Promise.withResolvers<void>();
    leaving.set(sandboxID, over);
    notify(sandboxID, true);
    return () => {
      leaving.delete(sandboxID);
      notify(sandboxID, false);
      over.resolve();
    };
  }

  /** Forgets the sandbox here at once if another node has taken it over. */
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
          // The sandbox was resumed or ended during the export, so the manifest is outdated.
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
