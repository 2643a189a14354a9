// Moves a sandbox to another node: it is paused and exported here, offered in etcd, taken over there, then forgotten here.
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { call, type Send } from "@svc/contract/call.ts";
import { takeSandbox } from "@svc/contract/cluster.ts";
import type { NodeRecord } from "@svc/contract/cluster-records.ts";
import { asFailure, Failure, type FailureName, fail } from "@svc/contract/failures.ts";
import type { MovedSandbox } from "@svc/contract/lifecycle.ts";
import type { KeyedLock } from "@svc/kit/keyed-lock.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Ownership } from "../../cluster/ownership.ts";
import type { Report } from "../../observe/open-observe.ts";
import type { Clock } from "../../records/clock.ts";
import { isPaused, isRunning, type Registry } from "../../records/registry.ts";
import type { SnapshotTransfer } from "../../snapshot-transfer/open-snapshot-transfer.ts";
import type { Volumes } from "../../volumes/open-volumes.ts";
import type { Drivers } from "../supply/drivers.ts";
import type { ProxyLink } from "../supply/proxy-link.ts";
import type { Claims } from "./claims.ts";
import type { Pauses } from "./pause.ts";
import type { ResumeSandbox } from "./resume.ts";

/*
 *   here                          etcd                     there
 *   pause, export ──────────────▶ share
 *   offer ──────────────────────▶ isOffered
 *   ask ───────────────────────────────────────────────▶ fetch all of it
 *                                 owner: there ◀───────── take
 *   forget it ◀───────────────────────────────────────── on record, resumed if it ran
 *
 * If a node is killed in between, etcd's record names the owner, and both nodes read it before they serve again.
 */
export type MoveParts = {
  readonly apiKey: string;
  /** How another node is asked; undefined: by plain HTTP. */
  readonly send: Send | undefined;
  readonly ownership: Ownership | undefined;
  readonly lock: KeyedLock;
  readonly registry: Pick<Registry, "get" | "owned">;
  readonly drivers: Pick<Drivers, "named">;
  readonly claims: Claims;
  readonly pauses: Pick<Pauses, "pause">;
  readonly proxy: Pick<ProxyLink, "waitingFor">;
  readonly resume: ResumeSandbox;
  readonly transfer: Pick<SnapshotTransfer, "exports" | "releaseSandbox">;
  readonly volumes: Pick<Volumes, "isShared">;
  readonly report: Report;
  readonly clock: Clock;
  readonly log: Log;
};

export interface Moves {
  /** True where sandboxes can move: there are other nodes, and object storage that all of them share. */
  readonly isPossible: boolean;
  /** Moves to node `asked`, or to any that accepts it. @throws the failures that `moveSandbox` lists; the sandbox is then here, as it was. */
  move(sandboxID: string, asked: string | undefined): Promise<MovedSandbox>;
}

/** The maximum number of nodes asked, one after the other. */
const MAX_TARGETS = 3;
/** The time for the sandbox to answer the requests it has received, before it is paused; newer ones wait. */
const GRACE_MS = 250;
const GRACE_LOOK_MS = 5;
const TAKE_MS = 15 * 60_000;
/** Failures of the asked node alone, after which the next node is asked. */
const passesToNext = new Set<FailureName>([
  "CAPACITY_EXHAUSTED",
  "TOO_MANY_REQUESTS",
  "SNAPSHOT_UNSUITABLE",
  "DISK_FULL",
  "SERVER_UNREACHABLE",
  "SHUTTING_DOWN",
  "TIMED_OUT",
]);

type Stages = { pauseMs: number; exportMs: number; importMs: number; resumeMs: number };
type Done = { readonly nodeID: string; readonly resumeFailed?: string | undefined };

export function openMoves(parts: MoveParts): Moves {
  const { ownership, registry, claims, transfer, clock, report, log } = parts;
  const { exports } = transfer;

  return {
    isPossible: ownership !== undefined && exports !== undefined,
    async move(sandboxID, asked) {
      await claims.settled(sandboxID);
      const { claim } = registry.owned(sandboxID).status;
      const [own] = parts.volumes.isShared ? [] : (claim.volumes ?? []);
      if (own !== undefined)
        fail(
          "INVALID_REQUEST",
          `sandbox '${sandboxID}' mounts volume '${own.name}', which only this node has: volumes that move need a shared directory (volumes.directory)`,
        );
      if (ownership === undefined || exports === undefined)
        return fail("INVALID_REQUEST", "sandboxes move between nodes that share etcd (cluster.etcd) and object storage (objects.url): set both on all of them");
      const targets = await targetsFor(ownership, sandboxID, asked);
      const begin = performance.now();
      const stages: Stages = { pauseMs: 0, exportMs: 0, importMs: 0, resumeMs: 0 };
      let timeoutSeconds: number | undefined;
      let done: Done | undefined;
      try {
        done = await claims.leave(sandboxID, async () => {
          timeoutSeconds = await paused(sandboxID, stages);
          return leave({ ...parts, ownership, exports }, sandboxID, { targets, timeoutSeconds, stages });
        });
      } catch (error) {
        if (timeoutSeconds !== undefined) await resumeHere(sandboxID, timeoutSeconds);
        throw error;
      }
      const stoodStillMs = Math.round(performance.now() - begin);
      const state = timeoutSeconds === undefined || done.resumeFailed !== undefined ? ("paused" as const) : ("running" as const);
      const otherMs = Math.max(0, stoodStillMs - stages.pauseMs - stages.exportMs - stages.importMs - stages.resumeMs);
      report("sandbox.moved", { sandboxID }, { nodeID: done.nodeID, stoodStillMs });
      log.info({ sandboxID, ...done, ...stages, otherMs, stoodStillMs }, "a sandbox moved to another node");
      const reason = done.resumeFailed === undefined ? {} : { reason: done.resumeFailed };
      return { sandboxID, fromNodeID: ownership.nodeID, nodeID: done.nodeID, state, ...reason, stoodStillMs, ...stages, otherMs };
    },
  };

  /** Pauses the sandbox and returns its remaining time in seconds; undefined if it was paused already. */
  async function paused(sandboxID: string, stages: Stages): Promise<number | undefined> {
    let record = registry.get(sandboxID);
    // A pause or resume under way decides what there is to move, so it is awaited.
    if (!isRunning(record) && !isPaused(record)) {
      await parts.lock.run(sandboxID, async () => {});
      record = registry.get(sandboxID);
    }
    if (!isRunning(record)) return undefined;
    const begin = performance.now();
    const timeoutSeconds = Math.max(1, Math.ceil((record.status.claim.deadlineMs - clock.monotonicMs()) / 1000));
    for (let waited = 0; waited < GRACE_MS && parts.proxy.waitingFor(sandboxID) > 0; waited += GRACE_LOOK_MS) await sleep(GRACE_LOOK_MS);
    const { checkpoints } = parts.drivers.named(record.status.handle.runtime);
    try {
      await parts.pauses.pause(sandboxID, { kind: checkpoints.has("memory") ? "memory" : "filesystem", cause: "move" });
    } catch (error) {
      // The sandbox was paused concurrently, so it moves as a paused one.
      if (asFailure(error).name === "SANDBOX_PAUSED") return undefined;
      throw error;
    }
    stages.pauseMs = Math.round(performance.now() - begin);
    return timeoutSeconds;
  }

  async function resumeHere(sandboxID: string, timeoutSeconds: number): Promise<void> {
    // The sandbox may still run, if its pause failed, or may have moved after all.
    if (!isPaused(registry.get(sandboxID))) return;
    await parts
      .resume(sandboxID, { timeoutSeconds, cause: "request" })
      .catch((error: unknown) => log.error({ err: error, sandboxID }, "a sandbox that could not be moved could not be resumed; it is paused"));
  }
}

type Leaving = MoveParts & { readonly ownership: Ownership; readonly exports: NonNullable<SnapshotTransfer["exports"]> };
type Plan = { readonly targets: readonly NodeRecord[]; readonly timeoutSeconds: number | undefined; readonly stages: Stages };

async function leave(parts: Leaving, sandboxID: string, { targets, timeoutSeconds, stages }: Plan): Promise<Done> {
  const { apiKey, send, ownership, exports, lock, registry, claims, transfer } = parts;
  const begin = performance.now();
  const stage = (name: string) => parts.log.debug({ stage: name, sandboxID }, "stage begins");
  stage("move-export");
  await exports.now(sandboxID);
  stages.exportMs = Math.round(performance.now() - begin);
  try {
    await lock.run(sandboxID, async () => {
      if (!isPaused(registry.get(sandboxID))) fail("SANDBOX_CHANGING_STATE", `sandbox '${sandboxID}' was resumed or ended in the meantime`);
      stage("move-offer");
      await ownership.offer(sandboxID);
    });
    stage("move-ask");
    const { nodeID, answer } = await firstThatTakes(parts, targets, (url) =>
      call(takeSandbox, { sandboxID, timeoutSeconds }, { baseURL: url, apiKey, timeoutMs: TAKE_MS, ...(send && { send }) }),
    );
    stages.importMs = answer.importMs;
    stages.resumeMs = answer.resumeMs;
    stage("move-settle");
    await lock.run(sandboxID, async () => {
      if (isPaused(registry.get(sandboxID))) await transfer.releaseSandbox(sandboxID, nodeID);
      ownership.left(sandboxID);
    });
    return { nodeID, resumeFailed: answer.resumeFailed };
  } catch (error) {
    // A node that did not answer may have taken the sandbox all the same; SANDBOX_MOVED says so.
    const nodeID = await lock
      .run(sandboxID, () => claims.keep(sandboxID))
      .then(
        () => undefined,
        (kept: unknown) => (asFailure(kept).name === "SANDBOX_MOVED" ? String(asFailure(kept).details["node"]) : undefined),
      );
    if (nodeID !== undefined) return { nodeID, resumeFailed: asFailure(error).message };
    claims.stays(sandboxID);
    throw error;
  }
}

async function firstThatTakes<T>({ log }: Leaving, targets: readonly NodeRecord[], ask: (url: string) => Promise<T>): Promise<{ nodeID: string; answer: T }> {
  let last: Failure | undefined;
  for (const { nodeID, url = "" } of targets.slice(0, MAX_TARGETS)) {
    try {
      return { nodeID, answer: await ask(url) };
    } catch (error) {
      last = asFailure(error);
      log.warn({ nodeID, reason: last.message }, "a node did not take a sandbox over");
      if (!passesToNext.has(last.name)) break;
    }
  }
  throw new Failure(last?.name ?? "CAPACITY_EXHAUSTED", `no other node took the sandbox: ${last?.message ?? "there is none"}`, { cause: last });
}

async function targetsFor(ownership: Ownership, sandboxID: string, asked: string | undefined): Promise<readonly NodeRecord[]> {
  const others = await ownership.others();
  if (asked === undefined) {
    if (others.length === 0) fail("CAPACITY_EXHAUSTED", "there is no other node that accepts sandboxes");
    const weights = new Map(others.map(({ nodeID }) => [nodeID, createHash("sha256").update(`${sandboxID} ${nodeID}`).digest("hex")]));
    return [...others].sort((a, b) => ((weights.get(a.nodeID) ?? "") < (weights.get(b.nodeID) ?? "") ? -1 : 1));
  }
  if (asked === ownership.nodeID) fail("INVALID_REQUEST", `sandbox '${sandboxID}' is already on node ${asked}`);
  const target = others.find(({ nodeID, url }) => nodeID === asked || url === asked.replace(/\/$/, ""));
  return [target ?? fail("NODE_NOT_FOUND", `node '${asked}' is not a node that accepts sandboxes; \`svc nodes list\` lists them`)];
}
