// Paths on this machine: walked, and looked at before something is written there.
import { lstatSync, type Stats } from "node:fs";
import { lstat, opendir } from "node:fs/promises";
import { join, posix } from "node:path";
import { addItem, type CopyPlan, type Standing } from "./copy.ts";

/** All below `root` on this machine. Names that are not UTF-8 are refused: the sandbox could not give them back. */
export async function walkLocal(root: string): Promise<CopyPlan> {
  const plan: CopyPlan = { items: [], refused: [] };
  addEntry(plan, root, "", await lstat(root));
  for (let index = 0; index < plan.items.length; index++) {
    const item = plan.items[index];
    if (item?.type !== "directory") continue;
    const names: string[] = [];
    for await (const { name } of await opendir(join(root, item.path))) names.push(name);
    for (const name of names.sort()) {
      const path = posix.join(item.path, name);
      if (name.includes("\uFFFD")) plan.refused.push(`${join(root, path)} has a name that is not UTF-8`);
      else addEntry(plan, join(root, path), path, await lstat(join(root, path)));
    }
  }
  return plan;
}

function addEntry(plan: CopyPlan, shown: string, path: string, stats: Stats): void {
  if (stats.isSymbolicLink()) plan.refused.push(`${shown} is a symbolic link`);
  else if (stats.isDirectory()) addItem(plan, { path, type: "directory", sizeBytes: 0, mode: stats.mode & 0o777 });
  else if (stats.isFile()) addItem(plan, { path, type: "file", sizeBytes: stats.size, mode: stats.mode & 0o777 });
  else plan.refused.push(`${shown} is a special file`);
}

export function standingLocal(path: string): Standing {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return undefined;
  if (stats.isSymbolicLink()) return "link";
  if (stats.isDirectory()) return "directory";
  return stats.isFile() ? "file" : "special";
}
