// A home directory of a test's own, and the clearing away of those whose test was killed.
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const PREFIX = "svc-test-";
export const OWNER = "owner-pid";

/** Short, because unix sockets in it have at most 107 characters. */
export function makeHome(): string {
  const home = mkdtempSync(join(tmpdir(), PREFIX));
  writeFileSync(join(home, OWNER), String(process.pid));
  return home;
}

export function removeHome(home: string): void {
  rmSync(home, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
}

/** Homes of tests that run no more. */
export function staleHomes(): string[] {
  const stale: string[] = [];
  for (const name of readdirSync(tmpdir())) {
    if (!name.startsWith(PREFIX)) continue;
    const home = join(tmpdir(), name);
    try {
      process.kill(Number(readFileSync(join(home, OWNER), "utf8")), 0);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ESRCH") stale.push(home);
    }
  }
  return stale;
}
