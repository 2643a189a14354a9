// The limit of open files of this process, which Node raises at its start as far as the system allows.
import { readFileSync } from "node:fs";

/** Infinite where there is no limit, or where the system does not say. */
export function openFiles(): number {
  try {
    const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8")) ?? [];
    return soft === undefined ? Number.POSITIVE_INFINITY : Number(soft);
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
