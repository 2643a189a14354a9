// The version for people: the tree's version, and a short hash of its contents.
import { createHash } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));
const SHORT = 8;

const read = (path: string): string => readFileSync(path, "utf8");

/** Reads the commit of a clone or worktree without starting a process; returns undefined outside of one. */
function commitOf(root: string): string | undefined {
  try {
    const given = join(root, ".git");
    const folder = statSync(given).isDirectory()
      ? given
      : resolve(
          root,
          read(given)
            .replace(/^gitdir: /, "")
            .trim(),
        );
    const head = read(join(folder, "HEAD")).trim();
    if (!head.startsWith("ref: ")) return head;
    const ref = head.slice("ref: ".length);
    const common = orUndefined(() => resolve(folder, read(join(folder, "commondir")).trim())) ?? folder;
    const packed = () =>
      read(join(common, "packed-refs"))
        .split("\n")
        .find((line) => line.endsWith(` ${ref}`))
        ?.split(" ")[0];
    return orUndefined(() => read(join(common, ref)).trim()) ?? packed();
  } catch {
    return undefined;
  }
}

function orUndefined(act: () => string): string | undefined {
  try {
    return act();
  } catch {
    return undefined;
  }
}

/** Returns for example `svc 0.1.0 (1a2b3c4d)`: the commit, or without git a hash of the versions of its dependencies. */
export function displayVersion(root = ROOT): string {
  const text = read(join(root, "package.json"));
  const { version } = JSON.parse(text) as { version: string };
  const commit = commitOf(root);
  const own = () =>
    createHash("sha256")
      .update(text)
      .update(orUndefined(() => read(join(root, "package-lock.json"))) ?? "")
      .digest("hex");
  return `svc ${version} (${(commit !== undefined && /^[0-9a-f]{40}/.test(commit) ? commit : own()).slice(0, SHORT)})`;
}
