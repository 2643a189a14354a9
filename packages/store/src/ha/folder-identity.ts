// The id of the folder that holds a master's log: made with the folder, kept with it, gone with it.
import { randomUUID } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";

/** A member of the set may take over with what its folder holds: a wiped folder must not pass for it. */
export function folderIdentity(home: string): string {
  const path = join(home, "store", "member-id");
  try {
    return readFileSync(path, "latin1").trim() || fail("SETTING_INVALID", `${path} is empty; remove it, so that this master joins as a new member`);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
  const id = randomUUID();
  mkdirSync(join(home, "store"), { recursive: true });
  writeFileSync(`${path}.part`, `${id}\n`, { mode: 0o600, flush: true });
  renameSync(`${path}.part`, path);
  return id;
}

/** Whether a master ever wrote here. */
export const hasLog = (home: string): boolean => readdirSync(join(home, "store")).some((name) => /^(log|snapshot)-/.test(name));

/** What people call it where nobody named it. */
export const defaultName = (id: string): string => `${hostname()}-${id.slice(0, 4)}`;
