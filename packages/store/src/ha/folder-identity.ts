// The id of the folder that holds a master's log: created with the folder, kept with it, and deleted with it.
import { randomUUID } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";

/** Returns the folder's id. A member of the in-sync set may take over with its folder's log, so a wiped folder must get a new id. */
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

/** Reports whether a master ever wrote to this folder. */
export const hasLog = (home: string): boolean => readdirSync(join(home, "store")).some((name) => /^(log|snapshot)-/.test(name));

/** Returns the name of a master for which none is configured. */
export const defaultName = (id: string): string => `${hostname()}-${id.slice(0, 4)}`;
