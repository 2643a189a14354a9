// After a start: what records say meets what really runs; live sandboxes are adopted, everything else is cleared away.
import { deriveToken } from "@svc/kit/secret.ts";
import { openEgress } from "../network/networks.ts";
import type { RuntimeName } from "../runtime/runtime.ts";
import { endSandbox } from "./end.ts";
import { sendIdentity } from "./envd.ts";
import { sweepEnvd } from "./envd-binary.ts";
import type { Node } from "./node.ts";
import { isRunning } from "./registry.ts";
import type { SandboxRecord } from "./state.ts";

/** Ends at once: enough to be quick, few enough not to starve the host. */
const CONCURRENCY = 8;

export type Recovered = { adopted: number; paused: number; warm: number; ended: number; orphans: number };
type Outcome = Exclude<keyof Recovered, "orphans">;

/** Reads back and reconciles; afterwards I3 holds: nothing of this home runs, is mounted or routed without a record. */
export async function recover(node: Node): Promise<Recovered> {
  const result: Recovered = { adopted: 0, paused: 0, warm: 0, ended: 0, orphans: 0 };
  const records = node.records.all();
  for (const record of records) node.registry.restore(record);
  await inParallel(records, async (record) => {
    const outcome = await reconcile(node, record);
    result[outcome]++;
  });
  result.orphans = (await clearOrphans(node)) + (await clearCaptures(node));
  return result;
}

/** Ends every sandbox of the home, and clears away what has no record; the ids of those that could not be ended. */
export async function endAll(node: Node): Promise<string[]> {
  for (const record of node.records.all()) node.registry.restore(record);
  await inParallel([...node.registry.all()], ({ sandboxID }) => endSandbox(node, sandboxID, "killed"));
  await clearOrphans(node);
  return [...node.registry.all()].map(({ sandboxID }) => sandboxID);
}

async function reconcile(node: Node, record: SandboxRecord): Promise<Outcome> {
  const { status, sandboxID } = record;
  switch (status.state) {
    case "creating":
    case "killing":
      await endSandbox(node, sandboxID, "node_lost");
      return "ended";
    case "resuming":
      node.registry.move(sandboxID, { event: "stayed" });
      await removeRunningParts(node, record, status.kept.runtime);
      return "paused";
    case "paused":
      await removeRunningParts(node, record, status.kept.runtime);
      return "paused";
    case "pausing": {
      const outcome = await thaw(node, record);
      return outcome === "running" ? adopt(node, node.registry.get(sandboxID) as SandboxRecord) : outcome;
    }
    case "warm":
    case "running":
      return adopt(node, record);
  }
}

/** Of a paused sandbox nothing runs: what a kill in the middle left is taken away, its capture stays. */
async function removeRunningParts(node: Node, { sandboxID, directory }: SandboxRecord, runtime: RuntimeName): Promise<void> {
  await node.runtimeNamed(runtime).destroy({ runtimeID: sandboxID, directory });
}

/** A pause that was not acknowledged never was: the sandbox goes on where it was frozen. */
async function thaw(node: Node, record: SandboxRecord): Promise<"running" | "paused" | "ended"> {
  const { status, sandboxID } = record;
  if (status.state !== "pausing") return "ended";
  const runtime = node.runtimeNamed(status.handle.runtime);
  try {
    if (record.bootID === node.bootID && runtime.isAlive(status.handle)) {
      await runtime.thaw(status.handle);
      node.registry.move(sandboxID, { event: "thawed", deadlineMs: status.claim.deadlineMs });
      return "running";
    }
    // It died after its capture was whole and before that was on record: nothing is lost.
    await node.captures.verify(status.kept.captureID);
    node.registry.move(sandboxID, { event: "paused", pausedAtWallMs: node.clock.wallMs() });
    await removeRunningParts(node, record, status.kept.runtime);
    return "paused";
  } catch (error) {
    node.log.error({ err: error, sandboxID }, "a sandbox died while it was being paused and ends");
  }
  await endSandbox(node, sandboxID, "node_lost");
  return "ended";
}

async function adopt(node: Node, record: SandboxRecord): Promise<Outcome> {
  const { status, sandboxID } = record;
  if (status.state !== "warm" && status.state !== "running") return "ended";
  if (record.bootID !== node.bootID) {
    await endSandbox(node, sandboxID, "node_lost");
    return "ended";
  }
  const runtime = node.runtimeNamed(status.handle.runtime);
  if (!runtime.isAlive(status.handle)) {
    await endSandbox(node, sandboxID, await runtime.deathReason(status.handle).catch(() => "crashed" as const));
    return "ended";
  }
  // A snapshot of files may have been cut off while the sandbox stood still; nothing to do where it runs.
  await runtime.thaw(status.handle).catch((error: unknown) => node.log.error({ err: error, sandboxID }, "a live sandbox could not be thawed"));
  const network = status.handle.network;
  const egress = status.state === "running" ? status.claim.egress : openEgress;
  try {
    if (network !== undefined) await node.networks?.adopt(network, egress);
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

/** Captures that nothing on record refers to: a kill came before the record, or between it and the removal. */
async function clearCaptures(node: Node): Promise<number> {
  const inUse = new Set(node.catalogue.captures());
  const envds = new Set([node.envd, ...node.catalogue.envds()]);
  for (const record of node.registry.all()) {
    envds.add(record.envd);
    if ("kept" in record.status) inUse.add(record.status.kept.captureID);
  }
  for (const { captureID, envd } of node.records.snapshots.list({})) {
    inUse.add(captureID);
    envds.add(envd);
  }
  sweepEnvd(node.home, envds);
  const swept = await node.captures.sweep(inUse);
  const captures = await Promise.all([...inUse].map((captureID) => node.captures.find(captureID).catch(() => undefined)));
  const directories = [...[...node.registry.all()].map((record) => record.directory), ...captures.flatMap((capture) => capture?.directory ?? [])];
  for (const runtime of node.runtimes.values()) await runtime.sweepPrograms(directories);
  return swept;
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
