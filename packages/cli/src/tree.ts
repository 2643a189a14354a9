// Draws sandboxes as the forest that forks make of them: each below the one it was copied from.

export type Leaf = { readonly sandboxID: string; readonly parentSandboxID?: string | undefined };
export type Branch<T extends Leaf> = {
  /** What stands before the id: the lines that lead to it. */
  readonly lead: string;
  readonly sandboxID: string;
  /** Undefined: not among those given. */
  readonly sandbox: T | undefined;
};

/** One row per sandbox, and one per parent that is not there; siblings keep the order they came in. */
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
  // A stack of our own: forks of forks may go deeper than calls may.
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
