// A home directory for a test, and the removal of homes whose test was killed.
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const PREFIX = "svc-test-";
export const OWNER = "owner-pid";

/** The path is short, because unix sockets in it have at most 107 characters. */
export function makeHome(): string {
  const home = mkdtempSync(join(tmpdir(), PREFIX));
  writeFileSync(join(home, OWNER), String(process.pid));
  return home;
}

export function removeHome(home: string): void {
  rmSync(home, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
}

/** Returns the homes of tests that no longer run. */
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
