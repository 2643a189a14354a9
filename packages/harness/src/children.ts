// Processes that must not outlive the one that started them.
import type { ChildProcess } from "node:child_process";

const children = new Set<ChildProcess>();
process.once("exit", () => {
  for (const child of children) child.kill("SIGKILL");
});

/** Kills it with SIGKILL when this process ends, unless it has ended by then. */
export function endWithUs(child: ChildProcess): void {
  children.add(child);
  child.once("exit", () => children.delete(child));
}
