// Measures twice a second which sandboxes use most of a processor: they yield to sandboxes that use little, and get all the remaining time.
import { readdirSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { type CgroupLayout, keyedValue, weightSetting } from "./cgroup-layout.ts";

const LOOK_MS = 500;
/** Fractions of one processor: a sandbox starts to yield above the first and stops below the second. Consecutive commands use 0.6 to 0.7. */
const GREEDY_ABOVE = 0.85;
const MODEST_BELOW = 0.3;
/** A fraction of an ordinary sandbox's weight: a waiting command runs first, and modest sandboxes never starve a greedy one. */
const GREEDY_PART = 1 / 16;

type Seen = { readonly ns: number; readonly atMs: number; readonly greedy: boolean };

export function isGreedy(was: boolean, used: number): boolean {
  if (used > GREEDY_ABOVE) return true;
  return used >= MODEST_BELOW && was;
}

/** Measures each sandbox below the parent and sets its weight, until it is closed. */
export function keepGreedy(layout: CgroupLayout, parent: string): { close(): void } {
  const { version, accounting, roots } = layout;
  const usage = version === 1 ? "cpuacct.usage" : "cpu.stat";
  const folder = join(accounting ?? "/nowhere", parent);
  let seen = new Map<string, Seen>();
  let whole: { readonly ns: number; readonly atMs: number } | undefined;
  let anyGreedy = false;
  /** An earlier node of this home may have left a weight, so the first round writes all of them. */
  let isFirst = true;

  function usedNs(name: string): number | undefined {
    try {
      const text = readFileSync(join(folder, name, usage), "utf8");
      return version === 1 ? Number(text) : keyedValue(text, "usage_usec") * 1000;
    } catch {
      return undefined; // the sandbox ended meanwhile
    }
  }

  function put(name: string, greedy: boolean): void {
    const { controller, file, value } = weightSetting(version, greedy ? GREEDY_PART : 1);
    void writeFile(join(roots.get(controller) ?? "/nowhere", parent, name, file), value, { flag: "r+" }).catch(() => {
      seen.delete(name); // its greediness is determined again at the next look, and written at the one after
    });
  }

  /** Reading one sandbox's usage costs 20 us, so sandboxes are only read while one of them may be greedy. */
  function look(): void {
    const before = whole;
    const ns = usedNs(".") ?? 0;
    whole = { ns, atMs: performance.now() };
    const used = before === undefined ? 0 : (ns - before.ns) / ((whole.atMs - before.atMs) * 1e6);
    if (used > GREEDY_ABOVE || anyGreedy) lookAtEach();
    else seen = new Map();
  }

  function lookAtEach(): void {
    const now = new Map<string, Seen>();
    anyGreedy = false;
    for (const name of namesIn(folder)) {
      const ns = usedNs(name);
      if (ns === undefined) continue;
      const atMs = performance.now();
      const before = seen.get(name);
      const greedy = before !== undefined && isGreedy(before.greedy, (ns - before.ns) / ((atMs - before.atMs) * 1e6));
      now.set(name, { ns, atMs, greedy });
      anyGreedy ||= greedy;
      if (before === undefined ? isFirst : greedy !== before.greedy) put(name, greedy);
    }
    isFirst = false;
    seen = now;
  }

  const looking = setInterval(look, LOOK_MS).unref();
  return { close: () => clearInterval(looking) };
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => (entry.isDirectory() ? [entry.name] : []));
  } catch {
    return [];
  }
}
