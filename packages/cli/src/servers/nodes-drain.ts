// `svc nodes drain|undrain|remove`: takes a node out of service and puts it back.
import type { SvcClient } from "@svc/contract/client.ts";
import type { NodeDrain } from "@svc/contract/node-control.ts";
import { type AccessOptions, withClient } from "../access/access.ts";

/** The interval between polls, and so the minimum between two lines. */
const POLL_MS = 500;

/** Returns 0 when nothing is running there, and, where sandboxes can move, nothing is left; 1 if one could not be paused or handed over. */
export function drainNode(id: string, { wait, ...access }: AccessOptions & { wait?: boolean }): Promise<number> {
  return withClient(access, async (client) => {
    await client.setNodeStatus(id, "draining");
    return wait === false ? 0 : await untilDrained(client, id);
  });
}

/** Waits for a drain that has begun; returns as drainNode does. */
export async function untilDrained(client: SvcClient, id: string): Promise<number> {
  for (let said = ""; ; ) {
    const drained = await client.nodeDrain(id);
    const { running, paused, failed, isDraining, handsOver } = drained;
    const line = `${running} run, ${paused} are paused`;
    if (line !== said) process.stderr.write(`${line}\n`);
    said = line;
    if (!isDraining) {
      process.stderr.write(`svc: node '${id}' was made ready again meanwhile\n`);
      return 1;
    }
    const left = handsOver ? running + paused : running;
    if (left === 0 || failed.length >= left) list(drained);
    if (left === 0) return 0;
    if (failed.length >= left) {
      for (const { sandboxID, message } of failed) process.stderr.write(`svc: ${sandboxID} stays there: ${message}\n`);
      return 1;
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** Prints where each sandbox moved, or that it was paused. */
function list({ pausedByDrain, movedByDrain }: NodeDrain): void {
  for (const { sandboxID, nodeID } of movedByDrain) process.stdout.write(`${sandboxID} moved to ${nodeID}\n`);
  for (const sandboxID of pausedByDrain) process.stdout.write(`${sandboxID} paused\n`);
}

/** Prints the sandboxes that the drain paused: they stay paused until a client resumes them. */
export function undrainNode(id: string, access: AccessOptions): Promise<number> {
  return withClient(access, async (client) => {
    // A node that does not answer is made ready through another one, which cannot list them.
    const drained = await client.nodeDrain(id).catch(() => undefined);
    await client.setNodeStatus(id, "ready");
    const ids = drained?.pausedByDrain ?? [];
    for (const sandboxID of ids) process.stdout.write(`${sandboxID}\n`);
    if (ids.length > 0) process.stderr.write(`${sandboxes(ids.length)} paused by the drain; svc resume ID... resumes them\n`);
    return 0;
  });
}

const sandboxes = (count: number) => (count === 1 ? "this sandbox was" : `these ${count} sandboxes were`);

export function removeNode(id: string, { dead, ...access }: AccessOptions & { dead?: true }): Promise<number> {
  return withClient(access, async (client) => {
    await client.removeNode(id, dead === true);
    return 0;
  });
}
