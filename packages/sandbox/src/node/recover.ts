// After a start: what records say meets what really runs; live sandboxes are adopted, everything else is cleared away.
import { asFailure } from "@svc/contract/failures.ts";
import { deriveToken } from "@svc/kit/secret.ts";
import { openEgress } from "../network/networks.ts";
import type { RuntimeName } from "../runtime/runtime.ts";
import { endSandbox } from "./end.ts";
import { sendIdentity } from "./envd.ts";
import { sweepEnvd } from "./envd-binary.ts";
import { hold, inParallel, missingDriver, noteUnusable, takeBack } from "./hold.ts";
import type { Node } from "./node.ts";
import { isRunning } from "./registry.ts";
import type { SandboxRecord } from "./state.ts";

/** Ends at once: enough to be quick, few enough not to starve the host. */
const CONCURRENCY = 8;

export type Recovered = { adopted: number; paused: number; warm: number; ended: number; aside: number; orphans: number };
type Outcome = Exclude<keyof Recovered, "orphans">;

/**
 * Reads back and reconciles; afterwards I3 holds: nothing of this home runs, is mounted or routed without a record. What cannot be
 * reconciled is set aside by name, and keeps nothing else from starting.
 */
export async function recover(node: Node): Promise<Recovered> {
  const result: Recovered = { adopted: 0, paused: 0, warm: 0, ended: 0, aside: 0, orphans: 0 };
  const usable: SandboxRecord[] = [];
  for (const record of node.records.all()) {
    const missing = missingDriver(node, record);
    if (missing !== undefined) {
      await hold(node, record, missing);
      continue;
    }
    node.registry.restore(record);
    usable.push(record);
  }
  await inParallel(usable, CONCURRENCY, async (record) => {
    result[await reconcileOrName(node, record)]++;
  });
  result.orphans = (await clearOrphans(node)) + (await clearCaptures(node));
  await noteUnusable(node);
  result.aside = node.aside.all().length;
  return result;
}

/** Ends every sandbox of the home, and clears away what has no record; the ids of those that could not be ended. */
export async function endAll(node: Node): Promise<string[]> {
  for (const record of node.records.all()) node.registry.restore(record);
  await inParallel([...node.registry.all()], CONCURRENCY, ({ sandboxID }) => endSandbox(node, sandboxID, "killed"));
  await clearOrphans(node);
  // Those whose record cannot be read were not even tried.
  const unread = node.aside.all().flatMap(({ kind, name }) => (kind === "sandbox" ? [name] : []));
  return [...new Set([...[...node.registry.all()].map(({ sandboxID }) => sandboxID), ...unread])];
}

/** For the watch: what was held because its driver was gone, and is not any more. */
export function takeBackHeld(node: Node): Promise<void> {
  return takeBack(node, async (record, isRouted) => void (await reconcileOrName(node, record, isRouted)));
}

async function reconcileOrName(node: Node, record: SandboxRecord, isRouted = false): Promise<Outcome> {
  try {
    return await reconcile(node, record, isRouted);
  } catch (error) {
    node.aside.add({ kind: "sandbox", name: record.sandboxID, reason: `it could not be reconciled with what runs: ${asFailure(error).message}` });
    return "aside";
  }
}

async function reconcile(node: Node, record: SandboxRecord, isRouted: boolean): Promise<Outcome> {
  const { status, sandboxID } = record;
  switch (status.state) {
    case "creating":
    case "killing":
      await endSandbox(node, sandboxID, "node_lost");
      return "ended";
    case "resuming":
      node.registry.moveBack(sandboxID, { event: "stayed" });
      await removeRunningParts(node, record, status.kept.runtime);
      return "paused";
    case "paused":
      await removeRunningParts(node, record, status.kept.runtime);
      return "paused";
    case "pausing": {
      const outcome = await thaw(node, record);
      return outcome === "running" ? adopt(node, node.registry.get(sandboxID) as SandboxRecord, isRouted) : outcome;
    }
    case "warm":
    case "running":
      return adopt(node, record, isRouted);
  }
}

/** Of a paused sandbox nothing runs: what a kill in the middle left is taken away, its capture stays. */
async function removeRunningParts(node: Node, { sandboxID, directory }: SandboxRecord, runtime: RuntimeName): Promise<void> {
  // Without its driver it cannot have been resumed; a resume removes them, too.
  if (!node.runtimes.has(runtime)) return;
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
      node.registry.moveBack(sandboxID, { event: "thawed", deadlineMs: status.claim.deadlineMs });
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

/** `isRouted`: its network was adopted while the record was held. */
async function adopt(node: Node, record: SandboxRecord, isRouted: boolean): Promise<Outcome> {
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
    if (network !== undefined && !isRouted) await node.networks?.adopt(network, egress);
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

/**
 * Captures that nothing on record refers to: a kill came before the record, or between it and the removal. Where a record cannot be
 * read, what it refers to is not known, and nothing is swept.
 */
async function clearCaptures(node: Node): Promise<number> {
  if (node.aside.isBlind) {
    node.log.warn("a record cannot be read: captures and programs that no other record names are kept for it");
    return 0;
  }
  const inUse = new Set([...node.catalogue.captured()].map((each) => each.captureID));
  const envds = new Set([node.envd, ...node.catalogue.envds()]);
  const records = [...node.registry.all(), ...node.held.values()];
  for (const { envd, status } of records) {
    envds.add(envd);
    if ("kept" in status && status.kept !== undefined) inUse.add(status.kept.captureID);
  }
  for (const { captureID, envd } of node.records.snapshots.list({})) {
    inUse.add(captureID);
    envds.add(envd);
  }
  sweepEnvd(node.home, envds);
  const swept = await node.captures.sweep(inUse);
  const directories = records.map((record) => record.directory);
  await inParallel([...inUse], CONCURRENCY, async (captureID) => {
    const capture = await node.captures.find(captureID).catch(() => undefined);
    if (capture !== undefined) directories.push(capture.directory);
  });
  for (const runtime of node.runtimes.values()) await runtime.sweepPrograms(directories);
  return swept;
}

/** Parts without a record: what a kill between two steps left. */
async function clearOrphans(node: Node): Promise<number> {
  let count = 0;
  const isKnown = (id: string) => node.registry.get(id) !== undefined || node.held.has(id) || node.aside.find("sandbox", id) !== undefined;
  for (const runtime of node.runtimes.values()) {
    const orphans = (await runtime.list()).filter((id) => !isKnown(id));
    count += orphans.length;
    await inParallel(orphans, CONCURRENCY, (runtimeID) =>
      runtime
        .destroy({ runtimeID, directory: `${node.home}/sandboxes/${runtimeID}` })
        .catch((error: unknown) =>
          node.aside.add({ kind: "sandbox", name: runtimeID, reason: `it has no record, and its parts resist: ${asFailure(error).message}` }),
        ),
    );
  }
  // Which network a record that cannot be read names is not known.
  const slots = node.aside.isBlind ? [] : ((await node.networks?.orphans()) ?? []);
  await inParallel(slots, CONCURRENCY, async (netns) => {
    await node.networks
      ?.removeOrphan(netns)
      .catch((error: unknown) => node.log.error({ err: error, netns }, "a network without a sandbox could not be removed"));
  });
  return count + slots.length;
}
