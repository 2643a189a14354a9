// A storm: various operations run while each round kills a part of the node's machinery; afterwards everything acknowledged must exist.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { connectSandbox, listSnapshots } from "@svc/contract/lifecycle.ts";
import { deleteSandbox, getSandbox, type ListedSandbox, listSandboxes } from "@svc/contract/sandbox.ts";
import { deleteTemplate, listTemplates } from "@svc/contract/template.ts";
import { assertNothingBut } from "./crash.ts";
import type { TestNode } from "./node.ts";
import { kill } from "./storm-kill.ts";
import { ask, envdOf, operate, type Storm, said } from "./storm-operations.ts";
import { planOf } from "./storm-plan.ts";
import { idle, type KnownSandbox, type World } from "./storm-world.ts";
import { until } from "./until.ts";

const DEATHS = ["crashed", "oom", "node_lost"];

/** Runs one round; violations are added to the world, with the seed that reproduces them. */
export async function stormRound(node: TestNode, world: World, seed: number, round: number): Promise<string> {
  const { target, killAfterMs, operations, random } = planOf(seed, round);
  const during = `seed ${seed}, round ${round}, ${target}`;
  const storm: Storm = { node, world, during, random };
  for (const each of world.sandboxes.values()) each.busy = false;
  world.unknownForks = new Set();
  world.unknownSnapshots = 0;

  const work = operations.map(async ({ wanted, afterMs }) => {
    await sleep(afterMs);
    await operate(storm, wanted);
  });
  await sleep(killAfterMs);
  const killed = await kill(node, target, random);
  for (const sandboxID of killed?.sandboxIDs ?? []) {
    const victim = world.sandboxes.get(sandboxID);
    if (victim !== undefined) victim.mortal = true;
  }
  if (target === "node") await node.start();
  await Promise.all(work);
  // Sandboxes whose creation was acknowledged while the killed process was ending count, too.
  for (const sandboxID of killed?.sandboxIDs ?? []) {
    const victim = world.sandboxes.get(sandboxID);
    if (victim !== undefined) victim.mortal = true;
  }
  await settle(storm);
  return killed?.what ?? "nothing";
}

/** Checks that everything acknowledged exists and is intact, and nothing else exists. */
export async function settle(storm: Storm): Promise<void> {
  const { node, world, during } = storm;
  const wrong = (what: string) => world.wrong.push(`${what} (${during})`);
  await settleSnapshots(storm, wrong);
  const listed = new Map((await allSandboxes(node)).map((each) => [each.sandboxID, each]));
  const known = new Set(world.sandboxes.keys());
  for (const each of [...world.sandboxes.values()]) await settleSandbox(storm, each, listed.get(each.sandboxID), wrong);
  for (const [sandboxID, { parentSandboxID }] of listed) {
    if (known.has(sandboxID)) continue;
    if (parentSandboxID === undefined || !world.unknownForks.has(parentSandboxID)) wrong(`${sandboxID} is there, and nobody made it`);
    await ask(storm, deleteSandbox, { sandboxID });
  }
  const names = new Set((await node.call(listTemplates, {})).flatMap((each) => each.names ?? []));
  for (const name of world.templates.keys()) if (![...names].some((each) => each === name || each.endsWith(`/${name}`))) wrong(`the template ${name} is lost`);

  await assertNothingBut(
    node,
    [...world.sandboxes.values()].filter(({ states }) => states[0] === "running").map(({ sandboxID }) => sandboxID),
    during,
  ).catch((error: Error) => wrong(`orphans: ${error.message}`));
  const expected = world.snapshots.size + [...world.sandboxes.values()].filter(({ states }) => states[0] === "paused").length;
  await until("the checkpoints that are needed, and no other", () => (readdirSync(join(node.home, "snapshots")).length === expected ? true : undefined)).catch(
    () => wrong(`${readdirSync(join(node.home, "snapshots")).length} checkpoints on disk, expected ${expected}`),
  );
}

async function settleSnapshots({ node, world }: Storm, wrong: (what: string) => void): Promise<void> {
  const there = new Set((await node.call(listSnapshots, { limit: 100 })).map(({ snapshotID }) => snapshotID));
  for (const snapshotID of world.snapshots.keys()) {
    if (there.has(snapshotID)) continue;
    wrong(`the snapshot ${snapshotID} is lost`);
    world.snapshots.delete(snapshotID);
  }
  // Deletes snapshots whose answer was lost, and those that are no longer needed.
  for (const snapshotID of there) if (!world.snapshots.has(snapshotID)) await node.call(deleteTemplate, { templateID: snapshotID });
}

async function settleSandbox(storm: Storm, known: KnownSandbox, listed: ListedSandbox | undefined, wrong: (what: string) => void): Promise<void> {
  const { node, world } = storm;
  const { sandboxID, states, mortal, mark } = known;
  if (listed !== undefined) {
    if (!states.includes(listed.state)) return forget(world, known, () => wrong(`${sandboxID} is ${listed.state}, not ${states.join(" or ")}`));
    known.states = [listed.state];
    if (listed.state === "paused") return mortal ? resumeMortal(storm, known) : undefined;
    if (mark === undefined) return mortal ? untilDead(storm, known, wrong) : undefined;
    const content = await contentOf(storm, sandboxID);
    if (content === `${mark}\nalive\n`) {
      known.mortal = false;
      return;
    }
    if (!mortal) return forget(world, known, () => wrong(`${sandboxID} says ${JSON.stringify(content)}, not ${mark}`));
    return untilDead(storm, known, wrong);
  }
  if (!states.includes("gone")) await mustHaveDied(node, known, wrong);
  world.sandboxes.delete(sandboxID);
}

/** A sandbox that was killed during its pause may have a dying process in its checkpoint; its resume then fails with that reason. */
async function resumeMortal(storm: Storm, known: KnownSandbox): Promise<void> {
  const resumed = await ask(storm, connectSandbox, { sandboxID: known.sandboxID, timeout: 3600 });
  known.mortal = false;
  if ("value" in resumed) known.states = ["running"];
  else {
    await ask(storm, deleteSandbox, { sandboxID: known.sandboxID });
    storm.world.sandboxes.delete(known.sandboxID);
  }
}

/** Waits for a sandbox whose parts were killed: it either answers correctly, or is gone with a reason. */
async function untilDead(storm: Storm, known: KnownSandbox, wrong: (what: string) => void): Promise<void> {
  const { node, world } = storm;
  const { sandboxID, mark } = known;
  const outcome = await until(`${sandboxID} to live or to end`, async () => {
    if ((await ended(node, sandboxID)) !== undefined) return "ended";
    const content = await contentOf(storm, sandboxID);
    return content !== undefined && (mark === undefined || content === `${mark}\nalive\n`) ? "lives" : undefined;
  }).catch(() => "neither");
  if (outcome === "lives") {
    known.mortal = false;
    return;
  }
  if (outcome === "neither") wrong(`${sandboxID} neither answers nor ends`);
  else await mustHaveDied(node, known, wrong);
  world.sandboxes.delete(sandboxID);
}

async function mustHaveDied(node: TestNode, { sandboxID, mortal, states }: KnownSandbox, wrong: (what: string) => void): Promise<void> {
  const reason = await ended(node, sandboxID);
  if (!mortal) wrong(`${sandboxID} (${states.join(" or ")}) is lost: ${reason ?? "no word of it"}`);
  else if (!DEATHS.includes(reason ?? "")) wrong(`${sandboxID} ended as ${reason ?? "nothing"}`);
}

function forget(world: World, { sandboxID }: KnownSandbox, say: () => void): void {
  say();
  world.sandboxes.delete(sandboxID);
}

async function contentOf({ node }: Storm, sandboxID: string): Promise<string | undefined> {
  const detail = await node.call(getSandbox, { sandboxID }).catch(() => undefined);
  return detail === undefined ? undefined : said(envdOf(node, detail), "cat kept; kill -0 $(cat pid) && echo alive");
}

/** Returns why a sandbox is gone; undefined while it exists. */
async function ended(node: TestNode, sandboxID: string): Promise<string | undefined> {
  const response = await fetch(`${node.url}/sandboxes/${sandboxID}`, { headers: { "x-api-key": node.apiKey } });
  const body = (await response.json()) as { reason?: string };
  return response.status === 404 ? (body.reason ?? "no reason") : undefined;
}

async function allSandboxes(node: TestNode): Promise<ListedSandbox[]> {
  return node.call(listSandboxes, { limit: 100 });
}

/** Resumes and checks all paused sandboxes, because only a resume proves a checkpoint. */
export async function resumeAll(storm: Storm): Promise<void> {
  for (const known of storm.world.sandboxes.values()) known.busy = false;
  for (let left = idle(storm.world, "paused").length; left > 0; left--) await operate(storm, "resume");
  for (const { sandboxID, states } of storm.world.sandboxes.values())
    if (states[0] !== "running") storm.world.wrong.push(`${sandboxID} was paused and cannot be resumed (${storm.during})`);
  await settle(storm);
}
