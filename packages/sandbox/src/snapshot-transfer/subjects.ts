// Converts snapshots and paused sandboxes to transfer subjects, and manifests to records of the receiving node.
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { PausedRecord } from "../records/registry.ts";
import type { NamedSnapshot, Snapshot } from "../records/snapshots.ts";
import type { Claim, SandboxRecord } from "../records/state.ts";
import type { Subject } from "./describe.ts";
import type { Manifest } from "./manifest.ts";
import type { Received } from "./receive.ts";

export const SNAPSHOT_ID = /^snap[0-9a-f]{20}$/;

/** `nodeID` is this node's name; it is absent for a file, since the node that imports the file becomes its origin. */
export function snapshotSubject(snapshot: NamedSnapshot, nodeID?: string): Subject {
  const { checkpointID, kind, runtime, image, limits, envd, envdVersion } = snapshot;
  const { snapshotID, sandboxID, templateID, names, user, workdir, strictFiles, env, volumes, createdAtWallMs } = snapshot;
  const shown = { snapshotID, sandboxID, templateID, names: [...names], user, workdir, env: { ...env }, createdAtWallMs };
  // Tenants are those of a deployment, so a file carries none.
  const owner = snapshot.tenant === undefined ? {} : { tenant: snapshot.tenant };
  const origin = nodeID === undefined ? {} : { originNodeID: snapshot.originNodeID ?? nodeID, ...owner };
  const transferred = {
    ...shown,
    ...(strictFiles === undefined ? {} : { strictFiles }),
    ...(volumes === undefined ? {} : { volumes: [...volumes] }),
    ...origin,
  };
  return { checkpointID, kind, runtime, image, limits, envd, envdVersion, snapshot: transferred };
}

export function sandboxSubject({ sandboxID, templateID, guestBootID, image, limits, envd, envdVersion, status }: PausedRecord): Subject {
  const { claim, kept, pausedAtWallMs } = status;
  const sandbox = { sandboxID, templateID, guestBootID, pausedAtWallMs, claim: claim as unknown as NonNullable<Manifest["sandbox"]>["claim"] };
  return { checkpointID: kept.checkpointID, kind: kept.kind, runtime: kept.runtime, image, limits, envd, envdVersion, sandbox };
}

/** Returns the checkpoint of a sandbox that does not run, also while its resume may still fail. */
export function keptAs(record: SandboxRecord | undefined): string | undefined {
  const status = record?.status;
  return status?.state === "paused" || status?.state === "resuming" ? status.kept.checkpointID : undefined;
}

export function snapshotOf({ snapshot, runtime, kind, limits, envd }: Manifest, { checkpointID, sizeBytes, image }: Received): Snapshot {
  const { names: _, originNodeID: _origin, ...rest } = snapshot ?? fail("INVALID_REQUEST", "it is not a snapshot's");
  return { ...rest, strictFiles: rest.strictFiles, checkpointID, kind, runtime, image, limits, envd: envd.name, envdVersion: envd.version, sizeBytes };
}

/** Returns the data from which the sandbox's details are shown. */
export function shownOf({ sandbox, runtime, kind, limits, envd, captureID: checkpointID }: Manifest) {
  const { sandboxID, templateID, pausedAtWallMs, claim } = sandbox ?? fail("INVALID_REQUEST", "it is not a paused sandbox's");
  const status = { state: "paused" as const, claim: claim as unknown as Claim, kept: { checkpointID, kind, runtime }, pausedAtWallMs };
  return { sandboxID, templateID, limits, envdVersion: envd.version, status };
}

export function pausedRecordOf(
  manifest: Manifest,
  { checkpointID, image }: Received,
  here: Pick<SandboxRecord, "bootID" | "initKey"> & { readonly home: string },
): SandboxRecord {
  const { status, ...shown } = shownOf(manifest);
  return {
    ...shown,
    bootID: here.bootID,
    initKey: here.initKey,
    directory: join(here.home, "sandboxes", shown.sandboxID),
    image,
    envd: manifest.envd.name,
    guestBootID: manifest.sandbox?.guestBootID ?? "",
    status: { ...status, kept: { ...status.kept, checkpointID } },
  };
}
