// After a start: what records say meets what really runs; live sandboxes are adopted, everything else is cleared away.
import { deriveToken } from "@svc/kit/secret.ts";
import { endSandbox } from "./end.ts";
import { sendIdentity } from "./envd.ts";
import type { Node } from "./node.ts";
import { isRunning } from "./registry.ts";
import type { SandboxRecord } from "./state.ts";

/** Ends at once: enough to be quick, few enough not to starve the host. */
const CONCURRENCY = 8;

export type Recovered = { adopted: number; warm: number; ended: number; orphans: number };

/** Reads back and reconciles; afterwards I3 holds: nothing of this home runs, is mounted or routed without a record. */
export async function recover(node: Node): Promise<Recovered> {
  const result: Recovered = { adopted: 0, warm: 0, ended: 0, orphans: 0 };
  const records = node.records.all();
  for (const record of records) node.registry.restore(record);
  await inParallel(records, async (record) => {
    const outcome = await reconcile(node, record);
    result[outcome]++;
  });
  result.orphans = await clearOrphans(node);
  return result;
}

async function reconcile(node: Node, record: SandboxRecord): Promise<"adopted" | "warm" | "ended"> {
  const { status, sandboxID } = record;
  if (status.state === "creating" || status.state === "killing") {
    await endSandbox(node, sandboxID, "node_lost");
    return "ended";
  }
  if (record.bootID !== node.bootID) {
    await endSandbox(node, sandboxID, "node_lost");
    return "ended";
  }
  const runtime = node.runtimeNamed(status.handle.runtime);
  if (!runtime.isAlive(status.handle)) {
    await endSandbox(node, sandboxID, await runtime.deathReason(status.handle).catch(() => "crashed" as const));
    return "ended";
  }
  const network = status.handle.network;
  const allowInternet = status.state === "running" ? status.claim.allowInternet : true;
  try {
    if (network !== undefined) await node.networks?.adopt(network, { allowInternet });
  } catch (error) {
    node.log.error({ err: error, sandboxID }, "the network of a live sandbox is gone; the sandbox cannot be reached and ends");
    await endSandbox(node, sandboxID, "node_lost");
    return "ended";
  }
  if (isRunning(record)) {
    await renewToken(node, record);
    return "adopted";
  }
  if (node.pool.adopt(record)) return "warm";
  await endSandbox(node, sandboxID, "killed");
  return "ended";
}

/** The seed may be another than at the last start: envd must then refuse the old token, too. */
async function renewToken(node: Node, record: SandboxRecord): Promise<void> {
  if (!isRunning(record) || !record.status.claim.secure) return;
  try {
    await sendIdentity(
      record.status.handle,
      { sandboxId: record.sandboxID, accessToken: deriveToken(node.seed, "envd", record.sandboxID) },
      node.initKey.privateKey,
    );
  } catch (error) {
    // The proxy demands the right token in any case; a busy envd is no reason to end a sandbox.
    node.log.warn({ err: error, sandboxID: record.sandboxID }, "envd of an adopted sandbox did not take its token");
  }
}

/** Parts without a record: what a kill between two steps left. */
async function clearOrphans(node: Node): Promise<number> {
  let count = 0;
  for (const runtime of node.runtimes.values()) {
    const orphans = (await runtime.list()).filter((id) => node.registry.get(id) === undefined);
    count += orphans.length;
    await inParallel(orphans, (runtimeID) => runtime.destroy({ runtimeID, directory: `${node.home}/sandboxes/${runtimeID}` }));
  }
  const slots = (await node.networks?.orphans()) ?? [];
  await inParallel(slots, async (netns) => node.networks?.removeOrphan(netns));
  return count + slots.length;
}

async function inParallel<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const queue = [...items];
  await Promise.all(
    Array.from({ length: CONCURRENCY }, async () => {
      for (let item = queue.shift(); item !== undefined; item = queue.shift()) await work(item);
    }),
  );
}
