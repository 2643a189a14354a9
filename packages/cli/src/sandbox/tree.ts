// Draws sandboxes as a forest of forks: each below the one it was copied from.

export type Leaf = { readonly sandboxID: string; readonly parentSandboxID?: string | undefined };
export type Branch<T extends Leaf> = {
  /** The connecting lines before the id. */
  readonly lead: string;
  readonly sandboxID: string;
  /** Undefined if it is not among the given sandboxes. */
  readonly sandbox: T | undefined;
};

/** Returns one row per sandbox, and one per missing parent; siblings keep their order. */
export function treeOf<T extends Leaf>(sandboxes: readonly T[]): Branch<T>[] {
  const byID = new Map(sandboxes.map((sandbox) => [sandbox.sandboxID, sandbox]));
  const children = new Map<string, string[]>();
  const roots: string[] = [];
  for (const { sandboxID, parentSandboxID } of sandboxes) {
    if (parentSandboxID === undefined) {
      roots.push(sandboxID);
      continue;
    }
    const siblings = children.get(parentSandboxID);
    if (siblings !== undefined) siblings.push(sandboxID);
    else {
      children.set(parentSandboxID, [sandboxID]);
      if (!byID.has(parentSandboxID)) roots.push(parentSandboxID);
    }
  }
  const rows: Branch<T>[] = [];
  // The stack is explicit, since forks of forks may be deeper than the call stack.
  const stack = roots.toReversed().map((sandboxID) => ({ sandboxID, lead: "", below: "" }));
  for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
    const { sandboxID, lead, below } = next;
    rows.push({ lead, sandboxID, sandbox: byID.get(sandboxID) });
    const own = children.get(sandboxID) ?? [];
    children.delete(sandboxID);
    for (const [index, child] of [...own.entries()].reverse()) {
      const isLast = index === own.length - 1;
      stack.push({ sandboxID: child, lead: `${below}${isLast ? "└─ " : "├─ "}`, below: `${below}${isLast ? "   " : "│  "}` });
    }
  }
  return rows;
}
