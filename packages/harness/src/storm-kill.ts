// Kills one part of a node's machinery, and returns which sandboxes that may end.
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { killIfThere } from "./crash.ts";
import type { TestNode } from "./node.ts";
import { pick, type Target } from "./storm-plan.ts";

type Process = { readonly pid: number; readonly line: string };
export type Killed = { readonly what: string; readonly sandboxIDs: readonly string[] };

/** The wait for a program that runs only for milliseconds. */
const WATCH_MS = 800;
const SANDBOX_ID = /\bi[a-z0-9]{19}\b/;

/** Returns undefined if there was no such process. */
export async function kill(node: TestNode, target: Target, random: () => number): Promise<Killed | undefined> {
  const state = join(realpathSync(node.home), "run/gvisor/state");
  const of = (named: RegExp) => processes().filter(({ line }) => named.test(line) && line.includes(state));
  switch (target) {
    case "node":
      await node.kill("SIGKILL");
      return { what: "the node", sandboxIDs: [] };
    case "spawn helper":
      return end(
        processes().filter(({ pid, line }) => line.includes("spawn-helper.ts") && parentOf(pid) === node.pid),
        "the spawn helper",
        random,
        false,
      );
    case "runsc": {
      const untilMs = performance.now() + WATCH_MS;
      for (;;) {
        const found = of(/^\S*runsc\S* /).filter(({ line }) => !/^runsc-(sandbox|gofer) /.test(line));
        if (found.length > 0 || performance.now() > untilMs) return end(found, "runsc", random, false);
        await sleep(2);
      }
    }
    case "sandbox":
      return end(of(/^runsc-sandbox /), "a sandbox's kernel", random, true);
    case "gofer":
      return end(of(/^runsc-gofer /), "a gofer", random, true);
    case "envd": {
      const sandboxID = SANDBOX_ID.exec(pick(of(/^runsc-sandbox /), random)?.line ?? "")?.[0];
      if (sandboxID === undefined) return undefined;
      // envd is the first process inside, which only the sandbox's kernel can signal.
      spawnSync(process.env["SVC_RUNSC"] ?? "runsc", [`--root=${state}`, "kill", sandboxID, "KILL"], { timeout: 10_000 });
      return { what: `envd of ${sandboxID}`, sandboxIDs: [sandboxID] };
    }
  }
}

function end(found: readonly Process[], name: string, random: () => number, endsSandbox: boolean): Killed | undefined {
  const victim = found.length === 0 ? undefined : pick(found, random);
  if (victim === undefined) return undefined;
  killIfThere(victim.pid);
  const sandboxID = SANDBOX_ID.exec(victim.line)?.[0];
  return { what: sandboxID === undefined ? name : `${name} of ${sandboxID}`, sandboxIDs: endsSandbox && sandboxID !== undefined ? [sandboxID] : [] };
}

function processes(): Process[] {
  return readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    try {
      return [{ pid: Number(name), line: readFileSync(`/proc/${name}/cmdline`, "utf8").replaceAll("\0", " ") }];
    } catch {
      return []; // the process ended after it was listed
    }
  });
}

function parentOf(pid: number): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
  } catch {
    return 0;
  }
}
