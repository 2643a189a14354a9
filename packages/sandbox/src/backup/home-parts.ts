// Which parts of a home a backup has, and how each is copied.

export const STAGING = "backup";
/** A home with this file was not restored completely; a node does not start on it. */
export const UNFINISHED = "restore-unfinished.json";

/** Names in a home that each start makes again, or that describe only what runs now. */
const transient: ReadonlySet<string> = new Set([
  "run",
  "sandboxes",
  "logs",
  "reserve",
  "oci",
  "lost+found",
  "node.json",
  "up.json",
  // Set-up makes these again from their recipes.
  "templates",
  // Their files change while they are read, so each is an archive of its own.
  "volumes",
  STAGING,
  UNFINISHED,
]);

/** Names of folders whose files are replaced and never written again, so that a hard link keeps their content. */
const linkedFolders: ReadonlySet<string> = new Set(["snapshots", "layers", "files", "bin", "snapshot-transfer"]);

/** Names of other servers' folders below a home; their own part of the backup copies them. */
const ofOtherServers: ReadonlySet<string> = new Set(["store", "store-service", "store-admin", "metadata", "indexer", "etcd", "objects"]);

/** Names of folders with a few small files that must be of the same moment as the databases. */
const secretFolders: ReadonlySet<string> = new Set(["secrets", "tls"]);

export type HomePart = "database" | "linked" | "copied at once" | "copied later" | "left out";

/** `auditLog`: the name of the file that only grows. */
export function partOf(name: string, isFolder: boolean, auditLog: string): HomePart {
  if (transient.has(name) || /\.(spare|new|tmp)$/.test(name) || /-(wal|shm)$/.test(name) || name.startsWith("node.json") || name.startsWith("up.json"))
    return "left out";
  if (isFolder && linkedFolders.has(name)) return "linked";
  if (isFolder && ofOtherServers.has(name)) return "left out";
  if (name.endsWith(".db")) return "database";
  if (isFolder) return secretFolders.has(name) ? "copied at once" : "copied later";
  return auditLog !== "" && name.startsWith(auditLog) ? "copied later" : "copied at once";
}
