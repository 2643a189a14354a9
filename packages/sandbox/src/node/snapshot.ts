// Snapshots: taken of running sandboxes, which go on; templates for new ones; found by name, tag and source.
import { randomBytes } from "node:crypto";
import { fail } from "@svc/contract/failures.ts";
import type { SnapshotInfo } from "@svc/contract/lifecycle.ts";
import type { CaptureKind } from "../runtime/runtime.ts";
import type { Template } from "../template/catalogue.ts";
import { untilHealthy } from "./envd.ts";
import type { Node } from "./node.ts";
import { checkCapture } from "./pause.ts";
import type { Records } from "./records.ts";
import type { NamedSnapshot, Snapshot, SnapshotQuery } from "./snapshots.ts";

const MAX_SNAPSHOTS = 10_000;
/** For an envd that answers nothing to be gone, or not. */
const SETTLED_MS = 5_000;

/** @throws as a pause; the sandbox runs on in any case. */
export function snapshotSandbox(node: Node, sandboxID: string, kind: CaptureKind, name: string | undefined): Promise<SnapshotInfo> {
  return node.turns.run(sandboxID, async () => {
    const record = node.registry.running(sandboxID);
    checkCapture(node, record, kind);
    checkName(node, name);
    const { handle, claim } = record.status;
    const runtime = node.runtimeNamed(handle.runtime);
    const captureID = node.captures.newID();
    const { sizeBytes } = await node.stages(runtime.name)("capture", () =>
      node.captures.take(captureID, kind, runtime.name, (into) => runtime.capture(handle, into), node.images.groundOf(record.image)),
    );
    // What dies while it is captured is captured dying. One whose envd merely stands still is waited for, and kept.
    const isAlive = () => runtime.isAlive(handle);
    await untilHealthy(handle, SETTLED_MS, isAlive).catch(() => undefined);
    if (!isAlive()) {
      await node.captures.remove(captureID);
      fail("CAPTURE_FAILED", `sandbox '${sandboxID}' died while it was captured`);
    }
    const snapshot: Snapshot = {
      snapshotID: `snap${randomBytes(10).toString("hex")}`,
      sandboxID,
      templateID: record.templateID,
      captureID,
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
      sizeBytes,
      createdAtWallMs: node.clock.wallMs(),
    };
    try {
      node.records.snapshots.add(snapshot, name);
    } catch (error) {
      await node.captures.remove(captureID);
      throw error;
    }
    node.tell("sandbox.snapshotted", record, { snapshotID: snapshot.snapshotID, kind, sizeBytes });
    return shown(node.records.snapshots.find(snapshot.snapshotID) as NamedSnapshot);
  });
}

function checkName(node: Node, name: string | undefined): void {
  if (node.records.snapshots.size >= MAX_SNAPSHOTS) {
    fail("TOO_MANY_REQUESTS", `this node holds ${MAX_SNAPSHOTS} snapshots, the maximum; delete some`);
  }
  const [bare] = name?.split(":") ?? [];
  if (bare !== undefined && node.catalogue.bears(bare)) fail("INVALID_REQUEST", `name: '${bare}' is the name of a template; choose another`);
}

/** @throws SNAPSHOT_NOT_FOUND. */
export function findSnapshot(node: Node, asked: string): NamedSnapshot {
  return node.records.snapshots.find(asked) ?? fail("SNAPSHOT_NOT_FOUND", `snapshot '${asked}' was not found; \`svc snapshot list\` shows those there are`);
}

/** One page, newest first, and the token of the next one where more follow. */
export function snapshotPage(node: Node, { limit, nextToken, ...query }: SnapshotQuery & { limit: number; nextToken?: string | undefined }) {
  const all = node.records.snapshots.list(query);
  const at = nextToken === undefined ? 0 : all.findIndex(({ snapshotID }) => snapshotID === nextToken) + 1;
  if (nextToken !== undefined && at === 0)
    fail("INVALID_REQUEST", "nextToken: is not one that this server gave, or its snapshot was deleted; begin again without it");
  const items = all.slice(at, at + limit);
  return { items: items.map(shown), next: at + limit < all.length ? items.at(-1)?.snapshotID : undefined };
}

/** Whether there was one by that id or name; running sandboxes of it go on, and starts under way finish. */
export async function deleteSnapshot(node: Node, asked: string): Promise<boolean> {
  const snapshot = node.records.snapshots.find(asked);
  if (snapshot === undefined) return false;
  node.records.snapshots.remove(snapshot.snapshotID);
  node.aside.drop("snapshot", snapshot.snapshotID);
  await node.captures.remove(snapshot.captureID);
  await node.pool.forget(snapshot.snapshotID);
  node.tell("snapshot.deleted", { sandboxID: snapshot.sandboxID, templateID: snapshot.snapshotID }, {});
  return true;
}

export function shown(snapshot: NamedSnapshot): SnapshotInfo {
  const { snapshotID, names, sandboxID, templateID, kind, limits, sizeBytes, createdAtWallMs } = snapshot;
  return {
    snapshotID,
    names: [...names],
    sandboxID,
    templateID,
    memory: kind === "memory",
    cpuCount: limits.cpuCount,
    memoryMB: limits.memoryMB,
    diskSizeMB: limits.diskSizeMB,
    sizeBytes,
    createdAt: new Date(createdAtWallMs).toISOString(),
  };
}

/** What a create finds under an id or name that is a snapshot's. */
export function findSnapshotTemplate(records: Records, asked: string): Template | undefined {
  const snapshot = records.snapshots.find(asked);
  return snapshot === undefined ? undefined : templateOf(snapshot);
}

/** A snapshot as something to start from. */
export function templateOf(snapshot: NamedSnapshot): Template {
  const { snapshotID, limits, names } = snapshot;
  return {
    name: names[0] ?? "",
    templateID: snapshotID,
    cpuCount: limits.cpuCount,
    memoryMB: limits.memoryMB,
    diskSizeMB: limits.diskSizeMB,
    user: snapshot.user,
    workdir: snapshot.workdir,
    strictFiles: snapshot.strictFiles,
    env: { ...snapshot.env },
    createdAt: new Date(snapshot.createdAtWallMs).toISOString(),
    recipe: snapshot.captureID,
    source: "snapshot",
    binds: [...snapshot.image.binds],
    folder: "",
    image: snapshot.image,
    captureID: snapshot.captureID,
    envd: snapshot.envd,
    envdVersion: snapshot.envdVersion,
    runtime: snapshot.runtime,
    limits,
  };
}
