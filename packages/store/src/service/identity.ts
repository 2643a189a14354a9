// The service's stable id and the epoch of this start, both kept in its home.
import { randomBytes } from "node:crypto";
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import type { Log } from "@svc/kit/log.ts";

export type Identity = { readonly stableID: string; readonly epoch: number };

/** `given` is the setting; if empty, the id in this home is reused or created. Each start has a larger epoch than all before. */
export function beginIdentity(home: string, given: string, log: Log): Identity {
  const folder = join(home, "store-service");
  const file = join(folder, "identity.json");
  const saved = savedIn(file);
  const stableID = given === "" ? (saved?.stableID ?? `${hostname()}-${randomBytes(4).toString("hex")}`) : given;
  // The current time exceeds earlier epochs even if the home was lost.
  const identity = { stableID, epoch: Math.max(Date.now(), (saved?.epoch ?? 0) + 1) };
  try {
    mkdirSync(folder, { recursive: true });
    writeFileSync(`${file}.new`, `${JSON.stringify(identity)}\n`, { mode: 0o600, flush: true });
    renameSync(`${file}.new`, file);
  } catch (error) {
    log.warn({ err: error, file }, "this service's stable id cannot be stored: the next start may have another one (setting store_service.stable_id)");
  }
  return identity;
}

function savedIn(file: string): Identity | undefined {
  try {
    const { stableID, epoch } = JSON.parse(readFileSync(file, "utf8")) as Identity;
    return typeof stableID === "string" && stableID !== "" && Number.isSafeInteger(epoch) ? { stableID, epoch } : undefined;
  } catch {
    return undefined;
  }
}
