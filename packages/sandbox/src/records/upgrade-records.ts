// Brings the records of earlier versions of svc up to date; a running sandbox lives on over an upgrade.
import type { DatabaseSync } from "node:sqlite";

type Written = Readonly<Record<string, unknown>>;

/** Version 1 knew neither pause nor egress rules. Its sandboxes have no `envd`: they run on, and cannot be checkpointed. */
export function upgradeToVersion2(db: DatabaseSync): void {
  rewrite(db, { table: "sandboxes", key: "sandbox_id", column: "record" }, (record) => ("status" in record ? withRules(record) : record));
}

/** Version 2 called a checkpoint's id `captureID`. */
export function upgradeToVersion3(db: DatabaseSync): void {
  rewrite(db, { table: "sandboxes", key: "sandbox_id", column: "record" }, ({ status, ...record }) => ({
    ...withCheckpointID(record),
    status: isObject(status) && isObject(status["kept"]) ? { ...status, kept: withCheckpointID(status["kept"]) } : status,
  }));
  rewrite(db, { table: "snapshots", key: "snapshot_id", column: "snapshot" }, withCheckpointID);
}

/** The same for what the templates' file holds: a build's result, made here or fetched. */
export function upgradeTemplatesToVersion2(db: DatabaseSync): void {
  for (const table of ["builds", "copies"])
    rewrite(db, { table, key: "build_id", column: "record" }, (record) =>
      isObject(record["result"]) ? { ...record, result: withCheckpointID(record["result"]) } : record,
    );
}

function withCheckpointID({ captureID, ...rest }: Written): Written {
  return captureID === undefined ? rest : { ...rest, checkpointID: captureID };
}

function withRules(record: Written): Written {
  const status = record["status"] as Written;
  const claim = status["claim"] as Written | undefined;
  return {
    image: { rootfs: "", binds: [] },
    envd: "",
    guestBootID: "",
    ...record,
    status: claim === undefined ? status : { ...status, claim: upgradedClaim(claim) },
  };
}

function upgradedClaim({ allowInternet, ...claim }: Written): Written {
  return {
    timeoutSeconds: 300,
    onTimeout: "kill",
    pauseKind: "memory",
    autoResume: false,
    egress: { allowInternet: allowInternet !== false, allowOut: [], denyOut: [] },
    envVars: {},
    user: "user",
    workdir: "",
    forkDepth: 0,
    ...claim,
  };
}

/** Every row whose column holds a JSON object; others are quarantined when they are read. */
function rewrite(db: DatabaseSync, { table, key, column }: { table: string; key: string; column: string }, change: (written: Written) => Written): void {
  const update = db.prepare(`UPDATE ${table} SET ${column} = ? WHERE ${key} = ?`);
  for (const row of db.prepare(`SELECT ${key}, ${column} FROM ${table}`).all()) {
    const written = parsed(row[column] as string);
    if (written !== undefined) update.run(JSON.stringify(change(written)), row[key] as string);
  }
}

function parsed(text: string): Written | undefined {
  try {
    const written: unknown = JSON.parse(text);
    return isObject(written) ? written : undefined;
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is Written {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
