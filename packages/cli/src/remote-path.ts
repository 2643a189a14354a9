// Paths inside a sandbox: made absolute, looked at, walked.
import { posix } from "node:path";
import type { EnvdClient, FileEntry, RequestOptions } from "@svc/contract/envd.ts";
import { asFailure, fail } from "@svc/contract/failures.ts";
import { addItem, type CopyPlan, type Standing } from "./copy.ts";

/** `~` and relative paths are below the user's home. A slash at the end stays. */
export async function absolute(envd: EnvdClient, path: string, options: RequestOptions): Promise<string> {
  if (path.includes("\0")) fail("INVALID_REQUEST", "a path holds no NUL");
  if (path.startsWith("/")) return posix.normalize(path);
  const home = (await envd.stat("~", options)).path;
  return posix.join(home, path === "~" || path.startsWith("~/") ? `.${path.slice(1)}` : path);
}

export async function statOrNothing(envd: EnvdClient, path: string, options: RequestOptions): Promise<FileEntry | undefined> {
  try {
    return await envd.stat(path, options);
  } catch (error) {
    if (asFailure(error).name === "FILE_NOT_FOUND") return undefined;
    throw error;
  }
}

export function standingOf(entry: FileEntry | undefined): Standing {
  if (entry === undefined) return undefined;
  if (entry.symlinkTarget !== undefined) return "link";
  return entry.type === "other" ? "special" : entry.type;
}

/** All below `root`, directory by directory, so that one answer never holds a whole tree. */
export async function walkRemote(envd: EnvdClient, root: FileEntry, options: RequestOptions): Promise<CopyPlan> {
  const plan: CopyPlan = { items: [], refused: [] };
  addEntry(plan, "", root);
  for (let index = 0; index < plan.items.length; index++) {
    const item = plan.items[index];
    if (item?.type !== "directory") continue;
    for (const entry of await envd.listDir(posix.join(root.path, item.path), 1, options)) {
      // The sandbox may be hostile: a name must not lead out of the directory we write to.
      if (entry.name === "" || entry.name === "." || entry.name === ".." || /[/\0]/.test(entry.name)) {
        fail("INVALID_REQUEST", `the sandbox names an entry ${JSON.stringify(entry.name)} in ${root.path}: refused`);
      }
      addEntry(plan, posix.join(item.path, entry.name), entry);
    }
  }
  return plan;
}

function addEntry(plan: CopyPlan, path: string, entry: FileEntry): void {
  if (entry.symlinkTarget !== undefined) plan.refused.push(`${entry.path} is a symbolic link`);
  else if (entry.type === "other") plan.refused.push(`${entry.path} is a special file`);
  else addItem(plan, { path, type: entry.type, sizeBytes: entry.type === "file" ? entry.sizeBytes : 0, mode: entry.mode });
}

/** What stands in a sandbox where the plan wants to write; only directories of the plan are looked into. */
export async function standingRemote(envd: EnvdClient, target: string, plan: CopyPlan, options: RequestOptions): Promise<Map<string, Standing>> {
  const standing = new Map<string, Standing>();
  const root = await statOrNothing(envd, target, options);
  if (root === undefined) return standing;
  standing.set("", standingOf(root));
  for (const item of plan.items) {
    if (item.type !== "directory" || standing.get(item.path) !== "directory") continue;
    for (const entry of await envd.listDir(posix.join(target, item.path), 1, options)) standing.set(posix.join(item.path, entry.name), standingOf(entry));
  }
  return standing;
}
