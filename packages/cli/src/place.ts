// A tree that has arrived beside its target takes its place by renames; names may hold bytes (byte-text.ts).
import { chmodSync, renameSync, rmSync } from "node:fs";
import { join, posix } from "node:path";
import { bytesOfText } from "@svc/contract/byte-text.ts";
import { fail } from "@svc/contract/failures.ts";
import { type CopyItem, type CopyPlan, isFree, type Standing } from "./copy.ts";
import { pathsOver } from "./links.ts";
import { standingLocal } from "./local-path.ts";

/** The name of a root that is a file, in the archive and where it was unpacked. */
const FILE = "file";
const OWNER_ALL = 0o700;

/** What stands in the way at `target`. @throws for a link that would lead out over a link that is there already. */
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

/** Moves all of `stage` to `target`. */
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
  // The innermost first: a mode may close the way to what is below. A directory that was there before keeps its own.
  for (const { path, type, mode } of plan.items.toReversed()) {
    if (type === "directory" && (mode & OWNER_ALL) !== OWNER_ALL && !merged.has(path)) chmodSync(bytesOfText(join(target, path)), mode);
  }
}

function move(from: string, to: string, item: CopyItem, force: boolean): void {
  if (!isFree(standingLocal(to), item.type, force)) fail("FILE_EXISTS", `${to} was created by somebody else during the copy; it was not replaced`);
  renameSync(bytesOfText(from), bytesOfText(to));
}

/** Directories that their owner may not write can neither move nor be emptied. */
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
      // It has moved, or has not arrived.
    }
  }
  rmSync(bytesOfText(stage), { recursive: true, force: true });
}
