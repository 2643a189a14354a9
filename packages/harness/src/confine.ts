// Removes the default route for the sandboxes of a test's home: their packets reach only this machine and its namespaces.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Each block gets two rules: its packets use any route except the default one, and the rest is rejected. */
const PREFERENCES = { routes: 7_000, end: 7_001 } as const;
/** An address that refuses at once, so that an unknown name costs neither time nor packets. */
export const NO_RESOLVER = "127.0.0.1:9";

/** Does nothing if the home has no networks (without root). Undone by `unconfine`, or by the next test run. */
export function confine(home: string): void {
  const block = blockOf(home);
  if (block === undefined || confined().includes(block)) return;
  rule("add", PREFERENCES.routes, block, ["lookup", "main", "suppress_prefixlength", "0"]);
  // Like a blackhole, but the sender gets an error, so that a test need not wait for a time-out.
  rule("add", PREFERENCES.end, block, ["unreachable"]);
}

export function unconfine(home: string): void {
  const block = blockOf(home);
  if (block !== undefined) release(block);
}

/** Removes the rules of killed tests, because another home may use their block by now. */
export function sweepConfined(isInUse: (block: string) => boolean): void {
  for (const block of confined()) if (!isInUse(block)) release(block);
}

function confined(): string[] {
  const rules = JSON.parse(execFileSync("ip", ["-j", "-4", "rule", "show"], { encoding: "utf8" })) as { priority: number; src: string; srclen?: number }[];
  return rules.filter(({ priority }) => priority === PREFERENCES.end).map(({ src, srclen }) => (srclen === undefined ? src : `${src}/${srclen}`));
}

function release(block: string): void {
  for (const preference of Object.values(PREFERENCES)) {
    try {
      rule("del", preference, block, []);
    } catch {
      // The rule is already gone.
    }
  }
}

function rule(verb: "add" | "del", preference: number, block: string, action: readonly string[]): void {
  execFileSync("ip", ["-4", "rule", verb, "pref", String(preference), "from", block, ...action], { stdio: "pipe" });
}

function blockOf(home: string): string | undefined {
  const path = join(home, "network.json");
  return existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as { block?: string }).block : undefined;
}
