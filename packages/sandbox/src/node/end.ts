// Ends a sandbox: decided on disk first, then torn down; whoever asks again waits for the same end.
import type { DeathReason } from "../runtime/runtime.ts";
import type { Node } from "./node.ts";
import { isRunning } from "./registry.ts";

/** What envd knows of its processes is worth no more than this. */
const COLLECT_MS = 100;

/** Ends under way, by sandbox: at most one each. */
const underWay = new WeakMap<Node, Map<string, Promise<void>>>();

/**
 * Returns when nothing of the sandbox is left, or a part resists: that is logged, and tried again by the watch (I2).
 * @throws DISK_FULL when its end could not be recorded: then it goes on as it is.
 */
export function deleteSandbox(node: Node, sandboxID: string, reason: DeathReason): Promise<void> {
  const ends = underWay.get(node) ?? new Map<string, Promise<void>>();
  underWay.set(node, ends);
  const known = ends.get(sandboxID);
  if (known !== undefined) return known;
  const end = node.turns.runLast(sandboxID, () => decideAndTearDown(node, sandboxID, reason)).finally(() => ends.delete(sandboxID));
  ends.set(sandboxID, end);
  return end;
}

/** As `deleteSandbox`, for whoever has nobody to answer to: an end that the disk does not take is tried again by the watch. */
export async function endSandbox(node: Node, sandboxID: string, reason: DeathReason): Promise<void> {
  try {
    await deleteSandbox(node, sandboxID, reason);
    node.undecided.delete(sandboxID);
  } catch (error) {
    if (!node.undecided.has(sandboxID)) node.log.error({ err: error, sandboxID, reason }, "the end of a sandbox could not be recorded; it is tried again");
    node.undecided.set(sandboxID, reason);
  }
}

async function decideAndTearDown(node: Node, sandboxID: string, reason: DeathReason): Promise<void> {
  const before = node.registry.get(sandboxID);
  if (before === undefined) return;
  if (isRunning(before) && node.runtimeNamed(before.status.handle.runtime).isAlive(before.status.handle)) await node.observe.collect(sandboxID, COLLECT_MS);
  // I2: from here the end is certain, whatever happens to this process.
  node.registry.move(sandboxID, { event: "dying", reason });
  try {
    await tearDown(node, sandboxID);
    node.resisting.delete(sandboxID);
  } catch (error) {
    if (!node.resisting.has(sandboxID)) node.log.error({ err: error, sandboxID }, "a sandbox could not be torn down; it is tried again");
    node.resisting.add(sandboxID);
  }
}

async function tearDown(node: Node, sandboxID: string): Promise<void> {
  const record = node.registry.get(sandboxID);
  if (record?.status.state !== "killing") return;
  node.proxy?.drop(sandboxID);
  node.takenDown.delete(sandboxID);
  const { handle, claim, kept } = record.status;
  const parts = { runtimeID: sandboxID, directory: record.directory };
  const stage = node.stages(handle?.runtime ?? node.runtime.name);
  // The capture first: it is what a full disk waits for, and nothing that goes on needs it.
  if (kept !== undefined) await stage("release", () => node.captures.remove(kept.captureID));
  await stage("destroy", async () => {
    if (handle === undefined) await Promise.all([...node.runtimes.values()].map((runtime) => runtime.destroy(parts)));
    else await node.runtimeNamed(handle.runtime).destroy(parts);
  });
  const network = handle?.network;
  if (network !== undefined) await stage("detach", async () => node.networks?.detach(network));
  if (claim !== undefined) {
    node.metrics.ended.inc({ reason: record.status.reason });
    // While the record is there: a kill in between reports it twice, rather than never.
    node.tell("sandbox.ended", record, { reason: record.status.reason });
  }
  await stage("forget", async () => node.registry.forget(sandboxID));
  node.aside.drop("sandbox", sandboxID);
}
