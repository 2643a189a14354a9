// The secrets and drivers that existing records need before the node serves.
import type { RuntimeName } from "../runtime/runtime.ts";
import type { Records } from "./records.ts";
import { isOwned } from "./registry.ts";

/** True if sandboxes exist whose tokens derive from the seed. */
export function tokensInUse(records: Records): boolean {
  return records.all().some((record) => isOwned(record) && (record.status.claim.secure || record.status.claim.trafficPrivate));
}

/** Returns the drivers that existing sandboxes and snapshots need. */
export function runtimesInUse(records: Records): Set<RuntimeName> {
  const names = new Set(records.snapshots.list({}).map(({ runtime }) => runtime));
  for (const { status } of records.all()) {
    if ("handle" in status && status.handle !== undefined) names.add(status.handle.runtime);
    if ("kept" in status && status.kept !== undefined) names.add(status.kept.runtime);
  }
  return names;
}
