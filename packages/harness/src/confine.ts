// Takes the default route from the sandboxes of a test's home: what they send reaches this machine and its namespaces, and nothing else.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Two rules a block: its packets take any route but the default one; what is left goes nowhere. */
const PREFERENCES = { routes: 7_000, end: 7_001 } as const;
/** Refused at once, so that a name which no test serves costs no time and no packet. */
export const NO_RESOLVER = "127.0.0.1:9";

/** Nothing where the home has no networks (without root). Undone by `unconfine`, or by the next test run. */
export function confine(home: string): void {
  const block = blockOf(home);
  if (block === undefined || confined().includes(block)) return;
  rule("add", PREFERENCES.routes, block, ["lookup", "main", "suppress_prefixlength", "0"]);
  // As a blackhole, but the sender hears of it: a test need not wait for silence.
  rule("add", PREFERENCES.end, block, ["unreachable"]);
}

export function unconfine(home: string): void {
  const block = blockOf(home);
  if (block !== undefined) release(block);
}

/** Rules of killed tests: another home may have their block by now. */
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
      // gone already
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
