// Decides which symbolic links may be copied: one that stays inside the tree means the same wherever the tree is copied to.

/**
 * Returns true if a link at `path` (relative to the root of its tree) leads to a path in that tree.
 *
 * `..` is allowed only at the beginning, where it climbs from directories that are known not to be links. After a name, that name may itself be a link, and the
 * text does not show where `..` would lead.
 */
export function staysInside(path: string, target: string): boolean {
  if (target === "" || target.startsWith("/")) return false;
  const parts = partsOf(target);
  const climbs = climbsOf(parts);
  return !parts.slice(climbs).includes("..") && climbs <= path.split("/").length - 1;
}

/** Returns the paths that such a link passes through, from the root of its tree; the last one is its destination. */
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
