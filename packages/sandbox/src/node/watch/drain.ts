// Drain: the node accepts nothing new, pauses what runs, and moves paused sandboxes to other nodes where it can. The state survives restarts.
import { appendFileSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { asFailure } from "@svc/contract/failures.ts";
import type { NodeDrain } from "@svc/contract/node-control.ts";
import type { Log } from "@svc/kit/log.ts";
import { isOwned, isPaused, isRunning, type Registry, type RunningRecord } from "../../records/registry.ts";
import type { CheckpointKind } from "../../runtime/runtime.ts";
import type { Capacity } from "../supply/capacity.ts";
import type { Drivers } from "../supply/drivers.ts";
import { inParallel } from "../supply/unusable.ts";
import type { Moves } from "../verbs/move.ts";
import type { Pauses } from "../verbs/pause.ts";

export type DrainParts = {
  readonly home: string;
  readonly capacity: Pick<Capacity, "setDraining">;
  readonly registry: Pick<Registry, "all" | "get">;
  readonly drivers: Pick<Drivers, "named">;
  readonly pauses: Pick<Pauses, "pause">;
  readonly moves: Moves;
  readonly log: Log;
};

export interface Drain {
  readonly isDraining: boolean;
  /** The state is in the home's files when this returns. */
  set(isDraining: boolean): void;
  progress(): Omit<NodeDrain, "nodeID">;
  /** Continues a drain of an earlier run; called once sandboxes can be paused. */
  start(): void;
  close(): Promise<void>;
}

/** The number of concurrent pauses; each writes a sandbox's memory to disk. */
const CONCURRENCY = 4;
const MOVES_AT_ONCE = 2;
/** The interval between rounds: some pauses fail, and some sandboxes were still starting when the drain began. */
const AGAIN_MS = 5_000;
const MAX_SHOWN = 100;
const MAX_PAUSED_SHOWN = 1000;

export function openDrain({ home, capacity, registry, drivers, pauses, moves, log }: DrainParts): Drain {
  // The file exists while the node drains. It has a line "ID" per sandbox that the drain paused, and "ID NODE" per sandbox that it moved.
  const marker = join(home, "draining");
  const failed = new Map<string, string>();
  /** Sandboxes that are moving to another node and are not noted yet. */
  const leaving = new Set<string>();
  const closing = new AbortController();
  let isDraining = existsSync(marker);
  let isStarted = false;
  let working: Promise<void> | undefined;
  capacity.setDraining(isDraining);

  function running(): RunningRecord[] {
    return [...registry.all()].filter(isRunning);
  }

  async function pause({ sandboxID, status }: RunningRecord): Promise<void> {
    const { checkpoints } = drivers.named(status.handle.runtime);
    const kind: CheckpointKind = checkpoints.has("memory") ? "memory" : "filesystem";
    try {
      await pauses.pause(sandboxID, { kind, cause: "drain" });
      failed.delete(sandboxID);
      note(sandboxID);
    } catch (error) {
      const { name, message } = asFailure(error);
      // The client paused or ended it in the meantime.
      if (name === "SANDBOX_PAUSED" || name === "SANDBOX_NOT_FOUND") return void failed.delete(sandboxID);
      if (!failed.has(sandboxID)) log.error({ err: error, sandboxID }, "a sandbox could not be paused for the drain; it keeps running, retrying");
      failed.set(sandboxID, `could not be paused and runs on: ${message}`.slice(0, 500));
    }
  }

  async function handOver(sandboxID: string): Promise<void> {
    leaving.add(sandboxID);
    try {
      const { nodeID } = await moves.move(sandboxID, undefined);
      failed.delete(sandboxID);
      note(`${sandboxID} ${nodeID}`);
    } catch (error) {
      const { name, message } = asFailure(error);
      // It has ended, or was moved by another request.
      if (name === "SANDBOX_MOVED" || name === "SANDBOX_NOT_FOUND") return void failed.delete(sandboxID);
      failed.set(sandboxID, `could not be handed over: ${message}`.slice(0, 500));
    } finally {
      leaving.delete(sandboxID);
    }
  }

  /** A full disk only shortens the list; the drain continues. */
  function note(line: string): void {
    if (!isDraining) return;
    try {
      appendFileSync(marker, `${line}\n`);
    } catch (error) {
      log.warn({ err: error, sandbox: line }, "a sandbox that the drain paused or handed over could not be recorded as such");
    }
  }

  const notes = (): string[] => (isDraining ? readFileSync(marker, "utf8").split("\n") : []);

  function pausedByDrain(): string[] {
    const noted = new Set(notes());
    return [...registry.all()].filter((record) => isPaused(record) && noted.has(record.sandboxID)).map(({ sandboxID }) => sandboxID);
  }

  function movedByDrain(): NodeDrain["movedByDrain"] {
    return notes().flatMap((line) => {
      const [sandboxID = "", nodeID] = line.split(" ");
      return nodeID === undefined ? [] : [{ sandboxID, nodeID }];
    });
  }

  async function work(): Promise<void> {
    let isLogged = false;
    while (isDraining && !closing.signal.aborted) {
      const left = running();
      for (const sandboxID of failed.keys()) if (registry.get(sandboxID) === undefined) failed.delete(sandboxID);
      if (left.length === 0 && !isLogged) log.info("drained: no sandbox runs on this node");
      isLogged = left.length === 0;
      const continues = () => isDraining && !closing.signal.aborted;
      await inParallel(left, CONCURRENCY, async (record) => {
        if (continues()) await pause(record);
      });
      const paused = moves.isPossible ? [...registry.all()].filter(isPaused) : [];
      await inParallel(paused, MOVES_AT_ONCE, async ({ sandboxID }) => {
        if (continues()) await handOver(sandboxID);
      });
      await sleep(AGAIN_MS, undefined, { signal: closing.signal, ref: false }).catch(() => undefined);
    }
  }

  function begin(): void {
    if (!isDraining || !isStarted || working !== undefined || closing.signal.aborted) return;
    working = work().finally(() => {
      working = undefined;
      // The drain may have been set again while the last round finished.
      begin();
    });
  }

  return {
    get isDraining() {
      return isDraining;
    },
    set(next) {
      if (next === isDraining) return;
      if (next) writeFileSync(marker, "", { flush: true });
      else rmSync(marker, { force: true });
      isDraining = next;
      capacity.setDraining(next);
      log.info(next ? "this node drains: it takes no new sandboxes, and pauses those that run" : "this node is ready for sandboxes again");
      begin();
    },
    progress() {
      const owned = [...registry.all()].filter(isOwned);
      const runs = owned.filter(({ status }) => status.state === "running" || status.state === "pausing").length;
      const shown = [...failed].slice(0, MAX_SHOWN).map(([sandboxID, message]) => ({ sandboxID, message }));
      return {
        isDraining,
        running: runs,
        // Moving sandboxes count as paused, so that each is in the list of moved ones once the count is zero.
        paused: owned.length - runs + [...leaving].filter((sandboxID) => !owned.some((record) => record.sandboxID === sandboxID)).length,
        handsOver: moves.isPossible,
        failed: shown,
        pausedByDrain: pausedByDrain().slice(0, MAX_PAUSED_SHOWN),
        movedByDrain: movedByDrain().slice(-MAX_PAUSED_SHOWN),
      };
    },
    start() {
      isStarted = true;
      begin();
    },
    async close() {
      closing.abort();
      await working;
    },
  };
}
