// Ends a sandbox: decided on disk first, then taken apart; whoever asks again waits for the same end.
import type { DeathReason } from "../runtime/runtime.ts";
import type { Node } from "./node.ts";
import { isRunning } from "./registry.ts";

/** What envd knows of its processes is worth no more than this. */
const COLLECT_MS = 100;

/** Ends under way, by sandbox: at most one each. */
const underWay = new WeakMap<Node, Map<string, Promise<void>>>();

/** Returns when nothing of the sandbox is left. A part that resists is logged and tried again by the watch. */
export function endSandbox(node: Node, sandboxID: string, reason: DeathReason): Promise<void> {
  const ends = underWay.get(node) ?? new Map<string, Promise<void>>();
  underWay.set(node, ends);
  const known = ends.get(sandboxID);
  if (known !== undefined) return known;
  const end = node.turns
    .runLast(sandboxID, () => takeApart(node, sandboxID, reason))
    .catch((error: unknown) => node.log.error({ err: error, sandboxID }, "a sandbox could not be taken apart; it is tried again"))
    .finally(() => ends.delete(sandboxID));
  ends.set(sandboxID, end);
  return end;
}

async function takeApart(node: Node, sandboxID: string, reason: DeathReason): Promise<void> {
  const before = node.registry.get(sandboxID);
  if (before === undefined) return;
  if (isRunning(before) && node.runtimeNamed(before.status.handle.runtime).isAlive(before.status.handle)) await node.observe.collect(sandboxID, COLLECT_MS);
  // I2: from here the end is certain, whatever happens to this process.
  const record = node.registry.move(sandboxID, { event: "dying", reason });
  if (record.status.state !== "killing") return;
  node.proxy?.drop(sandboxID);
  node.takenDown.delete(sandboxID);
  const { handle, claim } = record.status;
  const parts = { runtimeID: sandboxID, directory: record.directory };
  const stage = node.stages(handle?.runtime ?? node.runtime.name);
  await stage("destroy", async () => {
    if (handle === undefined) await Promise.all([...node.runtimes.values()].map((runtime) => runtime.destroy(parts)));
    else await node.runtimeNamed(handle.runtime).destroy(parts);
  });
  const captureID = "kept" in before.status ? before.status.kept.captureID : undefined;
  if (captureID !== undefined) await stage("release", () => node.captures.remove(captureID));
  const network = handle?.network;
  if (network !== undefined) await stage("detach", async () => node.networks?.detach(network));
  if (claim !== undefined) {
    node.metrics.ended.inc({ reason: record.status.reason });
    // While the record is there: a kill in between tells it twice, rather than never.
    node.tell("sandbox.ended", record, { reason: record.status.reason });
  }
  await stage("forget", async () => node.registry.forget(sandboxID));
}
