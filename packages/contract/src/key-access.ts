// Which role a named key needs for which operation. An operation without a row is for the deployment's own key alone.
import type { FailureName } from "./failures.ts";
import { type Role, roles } from "./keys.ts";

const viewer: readonly string[] = [
  "listSandboxes",
  "listSandboxesV1",
  "getSandbox",
  "getSandboxMetrics",
  "getSandboxesMetrics",
  "getSandboxLogs",
  "getSandboxLogsV2",
  "listSnapshots",
  "getSnapshot",
  "listSandboxEvents",
  "listEventsOfSandbox",
  "listVolumes",
  "listSecrets",
  "getSecret",
  "listTeams",
  "getTenant",
  "getUsage",
];
const member: readonly string[] = [
  "createSandbox",
  "createSandboxV1",
  "deleteSandbox",
  "connectSandbox",
  "connectSandboxV1",
  "pauseSandbox",
  "resumeSandbox",
  "forkSandbox",
  "setSandboxTimeout",
  "refreshSandbox",
  "setSandboxNetwork",
  "createSnapshot",
  "createVolume",
  // Its answer has the token of the volume's content.
  "getVolume",
  "deleteVolume",
  "createSecret",
  "updateSecret",
  "deleteSecret",
  // Deletes the tenant's own snapshots alone.
  "deleteTemplate",
];
const admin: readonly string[] = ["createKey", "listKeys", "getKey", "updateKey", "deleteKey", "rotateKey"];

const needed: ReadonlyMap<string, Role> = new Map<string, Role>([
  ...viewer.map((name): [string, Role] => [name, "viewer"]),
  ...member.map((name): [string, Role] => [name, "member"]),
  ...admin.map((name): [string, Role] => [name, "admin"]),
]);

/** Returns the least role that may call the operation; undefined: no named key may. */
export function roleFor(operation: string): Role | undefined {
  return needed.get(operation);
}

export function mayDo(role: Role, least: Role): boolean {
  return roles.indexOf(role) >= roles.indexOf(least);
}

/** Members of answers with which a sandbox can be entered; a viewer does not get them. */
export const entryTokens: readonly string[] = ["envdAccessToken", "trafficAccessToken"];

/** Operations that answer a list whose items each say their tenant. */
export const listsOf: ReadonlySet<string> = new Set([
  "listSandboxes",
  "listSandboxesV1",
  "listKeys",
  "listSnapshots",
  "listSandboxEvents",
  "listEventsOfSandbox",
  "listVolumes",
  "listSecrets",
]);

/** Operations that answer one object that says its tenant, with the failure of one that does not exist. */
export const ofOne: ReadonlyMap<string, { readonly failure: FailureName; readonly what: string; readonly id: string }> = new Map([
  ["getSandbox", { failure: "SANDBOX_NOT_FOUND", what: "sandbox", id: "sandboxID" }],
  ["getSnapshot", { failure: "SNAPSHOT_NOT_FOUND", what: "snapshot", id: "snapshotID" }],
  ["getVolume", { failure: "VOLUME_NOT_FOUND", what: "volume", id: "volumeID" }],
  ["getSecret", { failure: "SECRET_NOT_FOUND", what: "secret", id: "secretID" }],
  ["getKey", { failure: "KEY_NOT_FOUND", what: "key", id: "id" }],
] as const);
