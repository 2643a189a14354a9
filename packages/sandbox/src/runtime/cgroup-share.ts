// What all sandboxes of a home weigh together where processors are short: as much as a session while they have little, less when they have much.
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { type CgroupLayout, keyedValue, weightSetting } from "./cgroup-layout.ts";

const LOOK_MS = 250;
/**
 * Parts of the machine's processors. Sandboxes that have less than the first are starved by the host's other programs (their own
 * clients, mostly), and get an equal weight; those that have more than the second have what they need, and give way: a busy loop
 * of one would make the node, and the client of another, wait for a core.
 */
const STARVED_BELOW = 0.3;
const SATED_ABOVE = 0.45;

/** What all sandboxes of a home together weigh against each session or service of the host: as much as one, or a quarter of it. */
export type Share = "equal" | "yielding";

export const shareParts: Readonly<Record<Share, number>> = { equal: 1, yielding: 1 / 4 };

export function nextShare(share: Share, used: number): Share {
  if (used > SATED_ABOVE) return "yielding";
  return used < STARVED_BELOW ? "equal" : share;
}

/** Looks at what the group used, and sets its weight, until it is closed. It may be absent, and come later. */
export function keepShare({ version, accounting, roots }: CgroupLayout, parent: string): { close(): void } {
  const usage = join(accounting ?? "/nowhere", parent, version === 1 ? "cpuacct.usage" : "cpu.stat");
  let share: Share | undefined;
  let before: { readonly ns: number; readonly atMs: number } | undefined;

  function look(): void {
    let text: string;
    try {
      text = readFileSync(usage, "utf8");
    } catch {
      before = share = undefined; // no sandbox yet
      return;
    }
    const now = { ns: version === 1 ? Number(text) : keyedValue(text, "usage_usec") * 1000, atMs: performance.now() };
    const used = before === undefined ? 1 : (now.ns - before.ns) / ((now.atMs - before.atMs) * 1e6 * availableParallelism());
    before = now;
    const next = nextShare(share ?? "yielding", used);
    if (next === share) return;
    const { controller, file, value } = weightSetting(version, shareParts[next]);
    share = next;
    void writeFile(join(roots.get(controller) ?? "/nowhere", parent, file), value, { flag: "r+" }).catch(() => {
      share = undefined; // tried again at the next look
    });
  }

  const looking = setInterval(look, LOOK_MS).unref();
  return { close: () => clearInterval(looking) };
}
