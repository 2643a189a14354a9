// Moves a tree from its staging folder next to the target into place by renames; names may contain bytes (byte-text.ts).
import { chmodSync, renameSync, rmSync } from "node:fs";
import { join, posix } from "node:path";
import { bytesOfText } from "@svc/contract/byte-text.ts";
import { fail } from "@svc/contract/failures.ts";
import { type CopyItem, type CopyPlan, isFree, type Standing } from "./copy.ts";
import { pathsOver } from "./links.ts";
import { standingLocal } from "./local-path.ts";

/** The name of a root that is a file, in the archive and in the staging folder. */
const FILE = "file";
const OWNER_ALL = 0o700;

/** Returns the entries that already exist at `target`. @throws for a link that would pass through an existing link. */
export function conflictsWith(plan: CopyPlan, target: string, force: boolean): { path: string; standing: Standing }[] {
  const own = new Set(plan.items.map(({ path }) => path));
  const conflicts: { path: string; standing: Standing }[] = [];
  for (const { path, type, target: leadsTo = "" } of plan.items) {
    const standing = standingLocal(join(target, path));
    if (!isFree(standing, type, force)) conflicts.push({ path: join(target, path), standing });
    if (type !== "link") continue;
    const over = pathsOver(path, leadsTo).find((step) => !own.has(step) && standingLocal(join(target, step)) === "link");
    if (over !== undefined)
      fail("INVALID_REQUEST", `nothing copied: the link ${path} would lead over ${join(target, over)}, a symbolic link that is there already`);
  }
  return conflicts;
}

/** Moves all entries of `stage` to `target`. */
export function placeTree(plan: CopyPlan, stage: string, target: string, force: boolean): void {
  const root = plan.items[0];
  if (root === undefined) return;
  if (root.type !== "directory") {
    move(join(stage, FILE), target, root, force);
    return;
  }
  const children = new Map<string, CopyItem[]>();
  for (const item of plan.items.slice(1)) {
    const parent = posix.dirname(item.path) === "." ? "" : posix.dirname(item.path);
    const siblings = children.get(parent);
    if (siblings === undefined) children.set(parent, [item]);
    else siblings.push(item);
  }
  openUp(plan, stage);
  const merged = new Set<string>();
  const place = (item: CopyItem) => {
    const to = join(target, item.path);
    if (item.type !== "directory" || standingLocal(to) !== "directory") return move(join(stage, item.path), to, item, force);
    merged.add(item.path);
    for (const child of children.get(item.path) ?? []) place(child);
  };
  place(root);
  // The innermost directory is first, since a mode may block access to those below. A directory that existed before keeps its mode.
  for (const { path, type, mode } of plan.items.toReversed()) {
    if (type === "directory" && (mode & OWNER_ALL) !== OWNER_ALL && !merged.has(path)) chmodSync(bytesOfText(join(target, path)), mode);
  }
}

function move(from: string, to: string, item: CopyItem, force: boolean): void {
  if (!isFree(standingLocal(to), item.type, force)) fail("FILE_EXISTS", `${to} was created by somebody else during the copy; it was not replaced`);
  renameSync(bytesOfText(from), bytesOfText(to));
}

/** Directories without write permission for their owner can be neither moved nor emptied. */
function openUp(plan: CopyPlan, stage: string): void {
  for (const { path, type, mode } of plan.items) {
    if (type === "directory" && (mode & OWNER_ALL) !== OWNER_ALL) chmodSync(bytesOfText(join(stage, path)), mode | OWNER_ALL);
  }
}

export function removeTree(plan: CopyPlan, stage: string): void {
  for (const { path, type } of plan.items) {
    if (type !== "directory") continue;
    try {
      chmodSync(bytesOfText(join(stage, path)), OWNER_ALL);
    } catch {
      // The directory has already moved, or never arrived.
    }
  }
  rmSync(bytesOfText(stage), { recursive: true, force: true });
}
