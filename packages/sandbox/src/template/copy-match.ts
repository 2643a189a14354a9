// Selects the entries of an unpacked upload that a COPY step means: a path, a folder or a pattern.

import { fail } from "@svc/contract/failures.ts";
import { globPattern } from "@svc/contract/glob.ts";

/** `paths` are as find prints them in the upload (./a, ./a/b), and so is the result; "." means all. @throws INVALID_REQUEST. */
export function copySources(source: string, paths: readonly string[]): string[] {
  const wanted = source.replace(/^(\.\/+)+/, "").replace(/\/+$/, "");
  if (wanted === "" || wanted === ".") return ["."];
  const entries = paths.filter((path) => path !== ".").map((path) => path.replace(/^\.\//, ""));
  if (entries.includes(wanted)) return [`./${wanted}`];
  const pattern = globPattern(wanted);
  const matched = new Set(entries.filter((entry) => pattern.test(entry)));
  // A matching folder includes its content.
  const sources = [...matched].filter((entry) => !ancestors(entry).some((above) => matched.has(above))).sort();
  if (sources.length === 0) fail("INVALID_REQUEST", `COPY: '${source}' matches nothing among the ${entries.length} uploaded entries`);
  return sources.map((entry) => `./${entry}`);
}

function ancestors(path: string): string[] {
  const parts = path.split("/");
  return parts.slice(1).map((_, at) => parts.slice(0, at + 1).join("/"));
}
