// Parts of a node are killed at random, round after round, while sandboxes are created, paused, copied and built: nothing acknowledged is
// lost.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { test } from "node:test";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { resumeAll, stormRound } from "../src/storm.ts";
import type { Kind } from "../src/storm-plan.ts";
import { emptyWorld } from "../src/storm-world.ts";

export type StormOptions = {
  readonly rounds: number;
  /** No round begins after this time. */
  readonly budgetMs: number;
  /** Stores the progress of a storm that its budget or a failure interrupted. */
  readonly stateFile?: string;
  /** The minimum of acknowledged operations of each kind, over the whole storm. */
  readonly atLeastEach: number;
};

type Progress = { seed: number; round: number; acknowledged: Record<string, number>; explained: Record<string, number> };

/** SVC_STORM_SEED and SVC_STORM_ROUND, as a failure names them, start with exactly that round. */
export function stormSuite({ rounds, budgetMs, stateFile, atLeastEach }: StormOptions): void {
  void test(
    "parts of a node are killed at random while it works: nothing acknowledged is lost, nothing is left over, every 5xx gives a reason",
    needs("root", "envd", "base", "runsc"),
    async (t) => {
      const progress = begin(stateFile);
      const world = emptyWorld();
      await using node = await startNode({ runtime: "gvisor", flags: ["--pool.size=0"] });
      const untilMs = performance.now() + budgetMs;
      let done = 0;
      for (; progress.round < rounds && performance.now() < untilMs; done++) {
        const killed = await stormRound(node, world, progress.seed, progress.round);
        const { seed, round } = progress;
        if (process.env["SVC_STORM_SAYS"] === "1")
          process.stderr.write(`round ${round}: ${killed}; ${JSON.stringify(world.acknowledged)} ${JSON.stringify([...world.explained])}\n`);
        const again = `run it again with SVC_STORM_SEED=${seed} SVC_STORM_ROUND=${Math.max(0, round - done)}`;
        assert.ok(world.wrong.length === 0, `${world.wrong.join("\n")}\n${again}\n${node.log().slice(-6000)}`);
        progress.round++;
        keep(stateFile, add(progress, world.acknowledged, world.explained));
      }
      await resumeAll({ node, world, during: "the end", random: () => 0 });
      assert.deepEqual(world.wrong, [], `seed ${progress.seed}`);
      const whole = add(progress, world.acknowledged, world.explained);
      t.diagnostic(
        `seed ${whole.seed}: ${done} rounds, ${whole.round} of ${rounds} in all; acknowledged ${JSON.stringify(whole.acknowledged)}; refused with a reason ${JSON.stringify(whole.explained)}`,
      );
      if (progress.round < rounds) return;
      for (const kind of ["create", "pause", "resume", "fork", "snapshot", "build"] satisfies Kind[])
        assert.ok((whole.acknowledged[kind] ?? 0) >= atLeastEach, `${kind}: ${whole.acknowledged[kind]} acknowledged, expected ${atLeastEach}`);
      if (stateFile !== undefined) rmSync(stateFile, { force: true });
    },
  );
}

function begin(stateFile: string | undefined): Progress {
  const seed = process.env["SVC_STORM_SEED"];
  const fresh = { seed: Math.floor(Math.random() * 1e9), round: 0, acknowledged: {}, explained: {} };
  if (seed !== undefined) return { ...fresh, seed: Number(seed), round: Number(process.env["SVC_STORM_ROUND"] ?? 0) };
  try {
    return stateFile === undefined ? fresh : (JSON.parse(readFileSync(stateFile, "utf8")) as Progress);
  } catch {
    return fresh;
  }
}

function keep(stateFile: string | undefined, progress: Progress): void {
  if (stateFile === undefined) return;
  mkdirSync(dirname(stateFile), { recursive: true });
  writeFileSync(stateFile, JSON.stringify(progress));
}

/** Adds the counts of this run to those of earlier ones. */
function add(before: Progress, acknowledged: Record<Kind, number>, explained: ReadonlyMap<string, number>): Progress {
  const sum = (old: Record<string, number>, more: Iterable<[string, number]>) => ({
    ...old,
    ...Object.fromEntries([...more].map(([name, count]) => [name, (old[name] ?? 0) + count])),
  });
  return { ...before, acknowledged: sum(before.acknowledged, Object.entries(acknowledged)), explained: sum(before.explained, explained) };
}
