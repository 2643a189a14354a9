// The files of the tree that people write, which git would track; git is not used, since a copy need not be a clone.
import { readdirSync } from "node:fs";
import { join } from "node:path";

const skipped = new Set(["node_modules", ".git", "build", "results", ".svc"]);
const written = /\.(ts|js|mjs|tsx|go|sh|awk|py|md|json|toml|txt|yml|yaml|c|cc|cpp|h|hpp|proto)$|^svc$/;

export function sourceFiles(root: string, folder = ""): readonly string[] {
  return readdirSync(join(root, folder), { withFileTypes: true })
    .flatMap((entry) => {
      const path = folder === "" ? entry.name : `${folder}/${entry.name}`;
      if (skipped.has(entry.name)) return [];
      if (entry.isDirectory()) return sourceFiles(root, path);
      return entry.isFile() && written.test(entry.name) && entry.name !== "package-lock.json" ? [path] : [];
    })
    .sort();
}
