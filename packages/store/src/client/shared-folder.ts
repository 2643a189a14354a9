// Opens the folder that the cluster shares, named by the master, if this host has it.
import { mkdir, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { SharedFiles } from "../files/shared-files.ts";
import type { Connections } from "./session/connections.ts";

/** Bounds the check, so that a mount that does not answer does not keep a client from opening. */
const LOOK_MS = 5000;

/** Returns undefined where the cluster has no shared folder, or it is not mounted here. */
export async function openShared(calls: Connections): Promise<SharedFiles | undefined> {
  const answer = await calls.call("GetStorageConfig").catch(() => undefined);
  if (answer?.ok !== true || answer.value.root === "") return undefined;
  const folder = Buffer.from(answer.value.root, "latin1").toString();
  const looked = new AbortController();
  const isThere = await Promise.race([present(folder), sleep(LOOK_MS, false, { ref: false, signal: looked.signal }).catch(() => false)]);
  looked.abort();
  return isThere ? new SharedFiles(folder) : undefined;
}

/** The mounted parent folder must exist; the cluster's own folder in it is created. */
async function present(folder: string): Promise<boolean> {
  try {
    if (!(await stat(dirname(folder))).isDirectory()) return false;
    await mkdir(folder).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "EEXIST") throw error;
    });
    return true;
  } catch {
    return false;
  }
}
