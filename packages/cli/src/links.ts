// Which symbolic links may be copied: one that stays inside the tree means the same wherever the tree goes.

/**
 * Whether a link at `path` (relative to the root of its tree) leads to a place in that tree.
 *
 * `..` counts at the beginning alone: there it climbs from directories that are no links. Behind a name, that name may be
 * a link itself, and nobody could say from the text where it climbs from.
 */
export function staysInside(path: string, target: string): boolean {
  if (target === "" || target.startsWith("/")) return false;
  const parts = partsOf(target);
  const climbs = climbsOf(parts);
  return !parts.slice(climbs).includes("..") && climbs <= path.split("/").length - 1;
}

/** The paths that such a link leads over, from the root of its tree; the last is where it leads to. */
export function pathsOver(path: string, target: string): string[] {
  const parts = partsOf(target);
  const climbs = climbsOf(parts);
  const from = path.split("/").slice(0, -1);
  const at = from.slice(0, from.length - climbs);
  return parts.slice(climbs).map((part) => {
    at.push(part);
    return at.join("/");
  });
}

function partsOf(target: string): string[] {
  return target.split("/").filter((part) => part !== "" && part !== ".");
}

function climbsOf(parts: readonly string[]): number {
  const first = parts.findIndex((part) => part !== "..");
  return first < 0 ? parts.length : first;
}
