// The release that people read: the tree's version, and a short hash of its sources.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { treeCommit } from "@svc/kit/commit.ts";

const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));
const SHORT = 8;

function lockFile(root: string): string {
  try {
    return readFileSync(join(root, "package-lock.json"), "utf8");
  } catch {
    return "";
  }
}

/** Returns for example `svc 0.1.0 (1a2b3c4d)`: the commit, or for a tree without one a hash of its packages' versions. */
export function displayVersion(root = ROOT): string {
  const text = readFileSync(join(root, "package.json"), "utf8");
  const { version } = JSON.parse(text) as { version: string };
  const ofVersions = () => createHash("sha256").update(text).update(lockFile(root)).digest("hex");
  return `svc ${version} (${(treeCommit(root) || ofVersions()).slice(0, SHORT)})`;
}
