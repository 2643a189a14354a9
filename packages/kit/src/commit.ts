// Which commit this tree is at: that of its checkout, or of the release that it was unpacked from.
import { readFileSync, statSync } from "node:fs";
import { isAbsolute, join, resolve } from "node:path";

// COMMIT    `git archive` writes the commit there; in a checkout it still has its place holder
// .git      a folder, or of a worktree a file that names one

const ROOT = resolve(import.meta.dirname, "../../..");
const HASH = /^[0-9a-f]{40,64}$/;

/** "" where neither says. Changes that were not committed do not show. */
export function treeCommit(root: string = ROOT): string {
  const released = text(join(root, "COMMIT"));
  if (HASH.test(released)) return released;
  const git = gitFolder(root);
  const head = text(join(git, "HEAD"));
  if (HASH.test(head)) return head;
  const ref = /^ref: (refs\/\S+)$/.exec(head)?.[1];
  if (ref === undefined) return "";
  // A worktree's branches are those of the whole checkout.
  const shared = text(join(git, "commondir"));
  for (const folder of [git, ...(shared === "" ? [] : [from(git, shared)])]) {
    const commit = text(join(folder, ref)) || packed(folder, ref);
    if (HASH.test(commit)) return commit;
  }
  return "";
}

function gitFolder(root: string): string {
  const path = join(root, ".git");
  if (statSync(path, { throwIfNoEntry: false })?.isFile() !== true) return path;
  return from(root, /^gitdir: (.+)$/m.exec(text(path))?.[1] ?? "");
}

const packed = (folder: string, ref: string): string =>
  text(join(folder, "packed-refs"))
    .split("\n")
    .find((line) => line.endsWith(` ${ref}`))
    ?.split(" ")[0] ?? "";
const from = (folder: string, path: string): string => (isAbsolute(path) ? path : join(folder, path));

function text(path: string): string {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return "";
  }
}
