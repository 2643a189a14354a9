// Where the servers of a machine keep their state; every server and the command line use this function.
import { statfsSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fail } from "./failures.ts";

/** The kernel's magic number of procfs. */
const PROC = 0x9fa0;

/** `$SVC_HOME`, else /var/lib/svc for root, else ~/.local/share/svc. @throws as `homeAt`. */
export function homeDirectory(env: Readonly<Record<string, string | undefined>> = process.env): string {
  const named = env["SVC_HOME"];
  if (named !== undefined && named !== "") return homeAt(named);
  return process.getuid?.() === 0 ? "/var/lib/svc" : join(homedir(), ".local/share/svc");
}

/** @throws SETTING_INVALID for a path below /proc, where a program would try to create folders forever without success. */
export function homeAt(path: string): string {
  const home = resolve(path);
  if (fileSystemOf(home) === PROC)
    fail("SETTING_INVALID", `the home ${home} cannot be used: a file system of processes keeps no files; give a folder on a disk`);
  return home;
}

/** Returns the type of the file system of the nearest existing folder. */
function fileSystemOf(path: string): number | undefined {
  for (let at = path; ; at = dirname(at)) {
    try {
      return statfsSync(at).type;
    } catch (error) {
      if (at === dirname(at) || !["ENOENT", "ENOTDIR"].includes((error as NodeJS.ErrnoException).code ?? "")) return undefined;
    }
  }
}

/** The files, below the home, in which a running server writes where it answers. */
export const ownServerFiles = {
  master: "store/master.json",
  admin: "store-admin/address.json",
  indexer: "indexer/address.json",
  metadata: "metadata/address.json",
} as const;
