// Brings the records of earlier versions of svc up to date; a running sandbox lives on over an upgrade.
import type { DatabaseSync } from "node:sqlite";

/** Version 1 knew neither pause nor egress rules. Its sandboxes have no `envd`: they run on, and cannot be captured. */
export function upgradeToVersion2(db: DatabaseSync): void {
  for (const row of db.prepare("SELECT sandbox_id, record FROM sandboxes").all()) {
    const record = parsed(row["record"] as string);
    if (record === undefined) continue; // set aside when it is read
    db.prepare("UPDATE sandboxes SET record = ? WHERE sandbox_id = ?").run(JSON.stringify(upgraded(record)), row["sandbox_id"] as string);
  }
}

function parsed(text: string): Record<string, unknown> | undefined {
  try {
    const record: unknown = JSON.parse(text);
    return typeof record === "object" && record !== null && "status" in record ? (record as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

function upgraded(record: Record<string, unknown>): Record<string, unknown> {
  const status = record["status"] as Record<string, unknown>;
  const claim = status["claim"] as Record<string, unknown> | undefined;
  return {
    image: { rootfs: "", binds: [] },
    envd: "",
    guestBootID: "",
    ...record,
    status: claim === undefined ? status : { ...status, claim: upgradedClaim(claim) },
  };
}

function upgradedClaim({ allowInternet, ...claim }: Record<string, unknown>): Record<string, unknown> {
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
