// Sets the CPU weight of all sandboxes of a home together: as much as one session while they are starved, a quarter of it while they use much.
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { type CgroupLayout, keyedValue, weightSetting } from "./cgroup-layout.ts";

const LOOK_MS = 250;
/**
 * Fractions of the machine's processors. Below the first, the host's other programs (mostly the sandboxes' own clients) starve the sandboxes, so
 * they get an equal weight. Above the second, they have enough and yield: a busy loop in one sandbox would make the node and the clients of
 * other sandboxes wait for a core.
 */
const STARVED_BELOW = 0.3;
const SATED_ABOVE = 0.45;

/** The weight of all sandboxes of a home together against each session or service of the host: equal to one, or a quarter of it. */
export type Share = "equal" | "yielding";

export const shareParts: Readonly<Record<Share, number>> = { equal: 1, yielding: 1 / 4 };

export function nextShare(share: Share, used: number): Share {
  if (used > SATED_ABOVE) return "yielding";
  return used < STARVED_BELOW ? "equal" : share;
}

/** Measures what the group used and sets its weight, until it is closed. The group may not exist yet. */
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
