// Takes a snapshot of a running sandbox, which keeps running.
import { randomBytes } from "node:crypto";
import { fail } from "@svc/contract/failures.ts";
import type { SnapshotInfo } from "@svc/contract/lifecycle.ts";
import type { KeyedLock } from "@svc/kit/keyed-lock.ts";
import { untilHealthy } from "../../agent/health.ts";
import type { Report } from "../../observe/open-observe.ts";
import type { Checkpoints } from "../../records/checkpoints.ts";
import type { Clock } from "../../records/clock.ts";
import type { Registry } from "../../records/registry.ts";
import { type NamedSnapshot, type Snapshot, type Snapshots, shownSnapshot } from "../../records/snapshots.ts";
import type { CheckpointKind } from "../../runtime/runtime.ts";
import type { TemplateSource } from "../../template/template.ts";
import type { Checkpointer } from "../supply/checkpoint.ts";
import type { Drivers } from "../supply/drivers.ts";

const MAX_SNAPSHOTS = 10_000;
/** The time to wait for envd's answer after the checkpoint, which shows whether the sandbox survived it. */
const SETTLED_MS = 5_000;

export type TakeSnapshotParts = {
  readonly lock: KeyedLock;
  readonly registry: Pick<Registry, "running">;
  readonly drivers: Pick<Drivers, "named">;
  readonly checkpoints: Pick<Checkpoints, "newID" | "remove">;
  readonly checkpointer: Checkpointer;
  readonly snapshots: Snapshots;
  readonly templateIndex: Pick<TemplateSource, "bears">;
  readonly clock: Clock;
  readonly report: Report;
};

/** @throws the failures of a pause; the sandbox keeps running in any case. */
export type TakeSnapshot = (sandboxID: string, kind: CheckpointKind, name: string | undefined) => Promise<SnapshotInfo>;

export function openTakeSnapshot(parts: TakeSnapshotParts): TakeSnapshot {
  const { lock, registry, drivers, checkpoints, checkpointer, snapshots, clock, report } = parts;
  return (sandboxID, kind, name) =>
    lock.run(sandboxID, async () => {
      const record = registry.running(sandboxID);
      checkpointer.check(record, kind);
      checkName(parts, name);
      const { handle, claim } = record.status;
      const runtime = drivers.named(handle.runtime);
      const checkpointID = checkpoints.newID();
      const { sizeBytes } = await checkpointer.take(record, { checkpointID, kind, isKept: true });
      // The checkpoint of a sandbox that dies during it holds a dying state, so it is refused. One whose envd only hangs is kept.
      const isAlive = () => runtime.isAlive(handle);
      await untilHealthy(handle, SETTLED_MS, isAlive).catch(() => undefined);
      if (!isAlive()) {
        await checkpoints.remove(checkpointID);
        fail("CHECKPOINT_FAILED", `sandbox '${sandboxID}' died while its checkpoint was made`);
      }
      const snapshot: Snapshot = {
        snapshotID: `snap${randomBytes(10).toString("hex")}`,
        sandboxID,
        templateID: record.templateID,
        checkpointID,
        kind,
        runtime: runtime.name,
        image: record.image,
        limits: record.limits,
        envd: record.envd,
        envdVersion: record.envdVersion,
        user: claim.user,
        workdir: claim.workdir,
        strictFiles: claim.strictFiles,
        env: claim.envVars,
        ...(claim.volumes === undefined || claim.volumes.length === 0 ? {} : { volumes: claim.volumes }),
        ...(claim.tenant === undefined ? {} : { tenant: claim.tenant }),
        ...(Object.keys(claim.metadata).length === 0 ? {} : { labels: claim.metadata }),
        sizeBytes,
        createdAtWallMs: clock.wallMs(),
      };
      try {
        snapshots.add(snapshot, name);
      } catch (error) {
        await checkpoints.remove(checkpointID);
        throw error;
      }
      report("sandbox.snapshotted", record, { snapshotID: snapshot.snapshotID, kind, sizeBytes });
      return shownSnapshot(snapshots.find(snapshot.snapshotID) as NamedSnapshot);
    });
}

function checkName({ snapshots, templateIndex }: TakeSnapshotParts, name: string | undefined): void {
  if (snapshots.size >= MAX_SNAPSHOTS) fail("TOO_MANY_REQUESTS", `this node holds ${MAX_SNAPSHOTS} snapshots, the maximum; delete some`);
  const [bare] = name?.split(":") ?? [];
  if (bare !== undefined && templateIndex.bears(bare)) fail("INVALID_REQUEST", `name: '${bare}' is the name of a template; choose another`);
}
