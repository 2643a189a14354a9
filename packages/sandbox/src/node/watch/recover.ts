// Recovery at a start: compares records with what really runs, adopts live sandboxes and removes everything else.
// Longer than 300 lines: one function per state that a record can have after a kill.
import { asFailure } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import { sweepEnvd } from "../../agent/binary.ts";
import type { Membership } from "../../cluster/join.ts";
import { openEgress } from "../../egress/policy.ts";
import type { Networks } from "../../network/networks.ts";
import type { Checkpoints } from "../../records/checkpoints.ts";
import type { Clock } from "../../records/clock.ts";
import type { Quarantine } from "../../records/quarantine.ts";
import type { Records } from "../../records/records.ts";
import { isRunning, type Registry } from "../../records/registry.ts";
import type { SandboxRecord } from "../../records/state.ts";
import type { RuntimeName } from "../../runtime/runtime.ts";
import type { SnapshotTransfer } from "../../snapshot-transfer/open-snapshot-transfer.ts";
import type { TemplateSource } from "../../template/template.ts";
import type { Drivers } from "../supply/drivers.ts";
import type { Ends } from "../supply/end.ts";
import type { Identities } from "../supply/identity.ts";
import type { Pool } from "../supply/pool.ts";
import { inParallel, type Unusable } from "../supply/unusable.ts";
import type { QuarantineDeletion } from "../verbs/delete-quarantined.ts";

/** The number of sandboxes handled at once: enough to be quick, few enough not to starve the host. */
const CONCURRENCY = 8;

export type RecoverParts = {
  readonly home: string;
  readonly bootID: string;
  /** The envd of new sandboxes. */
  readonly envd: string;
  readonly records: Pick<Records, "all" | "snapshots">;
  readonly registry: Registry;
  readonly unusable: Unusable;
  readonly quarantined: Pick<QuarantineDeletion, "delete" | "remember">;
  readonly drivers: Pick<Drivers, "runtimes" | "named">;
  readonly checkpoints: Checkpoints;
  readonly networks: Networks | undefined;
  readonly identities: Pick<Identities, "sendToken">;
  readonly ends: Pick<Ends, "end">;
  readonly pool: Pick<Pool, "adopt">;
  readonly templateIndex: Pick<TemplateSource, "checkpointed" | "envds">;
  readonly quarantine: Quarantine;
  /** The deployment declared this node dead, so whatever still runs from before is ended (I36). */
  readonly isLost: boolean;
  /** In a deployment: the owners of this home's sandboxes, some of which other nodes may have taken over. */
  readonly membership: Pick<Membership, "shared" | "nodeID"> | undefined;
  readonly transfer: Pick<SnapshotTransfer, "releaseSandbox" | "exports">;
  readonly clock: Clock;
  readonly log: Log;
};

export type Recovered = { adopted: number; paused: number; warm: number; ended: number; quarantine: number; orphans: number };
type Outcome = Exclude<keyof Recovered, "orphans">;

/**
 * Reads the records back and reconciles them; I3 holds afterwards. A record that cannot be reconciled is quarantined by name and keeps nothing
 * else
 * from starting.
 */
export async function recover(parts: RecoverParts): Promise<Recovered> {
  const { records, registry, unusable, quarantine } = parts;
  const result: Recovered = { adopted: 0, paused: 0, warm: 0, ended: 0, quarantine: 0, orphans: 0 };
  const usable: SandboxRecord[] = [];
  for (const record of records.all()) {
    const missing = unusable.missingDriver(record);
    if (missing !== undefined) {
      await unusable.add(record, missing);
      continue;
    }
    registry.restore(record);
    usable.push(record);
  }
  await inParallel(usable, CONCURRENCY, async (record) => {
    result[await reconcileOrName(parts, record)]++;
  });
  result.orphans = (await clearOrphans(parts)) + (await clearCheckpoints(parts));
  await unusable.noteUnusable();
  result.quarantine = quarantine.all().length;
  return result;
}

/** Ends every sandbox of the home and removes parts without a record; returns which ended and which could not be ended. */
export async function endAll(parts: RecoverParts): Promise<EndedAll> {
  const { records, registry, ends, checkpoints, quarantined, quarantine, log } = parts;
  for (const record of records.all()) registry.restore(record);
  if (quarantine.isBlind) quarantined.remember({ checkpoints: await checkpoints.strays(inUseOf(parts).inUse), networks: [] });
  const all = [...registry.all()].map(({ sandboxID }) => sandboxID);
  await inParallel([...registry.all()], CONCURRENCY, ({ sandboxID }) => ends.end(sandboxID, "killed"));
  await clearOrphans(parts);
  const unreadable = quarantine.all().flatMap(({ kind, name }) => (kind === "sandbox" && registry.get(name) === undefined ? [name] : []));
  await inParallel(unreadable, CONCURRENCY, (sandboxID) =>
    quarantined.delete(sandboxID).catch((error: unknown) => log.error({ err: error, sandboxID }, "a sandbox that is quarantined could not be ended")),
  );
  const left = new Set([...registry.all()].map(({ sandboxID }) => sandboxID));
  for (const sandboxID of unreadable) if (quarantine.find("sandbox", sandboxID) !== undefined) left.add(sandboxID);
  return { ended: [...new Set([...all, ...unreadable])].filter((sandboxID) => !left.has(sandboxID)), left: [...left] };
}

export type EndedAll = { readonly ended: readonly string[]; readonly left: readonly string[] };

/** Called by the watch: takes back quarantined records whose driver is there again. */
export function takeBackUnusable(parts: RecoverParts): Promise<void> {
  return parts.unusable.takeBack(async (record, isRouted) => void (await reconcileOrName(parts, record, isRouted)));
}

async function reconcileOrName(parts: RecoverParts, record: SandboxRecord, isRouted = false): Promise<Outcome> {
  try {
    return await reconcile(parts, record, isRouted);
  } catch (error) {
    parts.quarantine.add({ kind: "sandbox", name: record.sandboxID, reason: `it could not be reconciled with what runs: ${asFailure(error).message}` });
    return "quarantine";
  }
}

async function reconcile(parts: RecoverParts, record: SandboxRecord, isRouted: boolean): Promise<Outcome> {
  const { registry, ends } = parts;
  const { status, sandboxID } = record;
  const owner = parts.membership?.shared.get(sandboxID)?.nodeID;
  if (owner !== undefined && owner !== parts.membership?.nodeID) {
    await leaveTo(parts, record, owner);
    return "ended";
  }
  switch (status.state) {
    case "creating":
    case "killing":
      await ends.end(sandboxID, "node_lost");
      return "ended";
    case "resuming":
      registry.moveBack(sandboxID, { event: "stayed" });
      await removeRunningParts(parts, record, status.kept.runtime);
      return "paused";
    case "paused":
      await removeRunningParts(parts, record, status.kept.runtime);
      return "paused";
    case "pausing": {
      const outcome = await thaw(parts, record);
      return outcome === "running" ? adopt(parts, registry.get(sandboxID) as SandboxRecord, isRouted) : outcome;
    }
    case "warm":
    case "running":
      return adopt(parts, record, isRouted);
  }
}

/** Another node took the sandbox over while this one was away, or before it could forget it; its data in object storage is no longer ours (I44). */
async function leaveTo(parts: RecoverParts, record: SandboxRecord, nodeID: string): Promise<void> {
  const { transfer, ends, log } = parts;
  const { sandboxID, status } = record;
  log.info({ sandboxID, nodeID }, "a sandbox of this node is another's by now");
  // It was deleted while this node was lost. An export that other nodes did not know of is deleted after the start, as for any ended sandbox.
  if (parts.membership?.shared.get(sandboxID)?.isOver === true) return ends.end(sandboxID, "killed");
  if (status.state === "paused") {
    await removeRunningParts(parts, record, status.kept.runtime);
    // I44
    return transfer.releaseSandbox(sandboxID, nodeID);
  }
  await transfer.exports?.forget(sandboxID);
  await ends.end(sandboxID, "node_lost");
}

/** Removes the running parts that a kill during a pause or resume left of a paused sandbox; its checkpoint stays. */
async function removeRunningParts({ drivers }: RecoverParts, { sandboxID, directory }: SandboxRecord, runtime: RuntimeName): Promise<void> {
  // Without its driver the sandbox cannot have been resumed; a later resume removes the parts, too.
  if (!drivers.runtimes.has(runtime)) return;
  await drivers.named(runtime).destroy({ runtimeID: sandboxID, directory });
}

/** A pause that was not acknowledged did not happen: the frozen sandbox is thawed and continues. */
async function thaw(parts: RecoverParts, record: SandboxRecord): Promise<"running" | "paused" | "ended"> {
  const { registry, checkpoints, ends, clock, log } = parts;
  const { status, sandboxID } = record;
  if (status.state !== "pausing") return "ended";
  const runtime = parts.drivers.named(status.handle.runtime);
  try {
    if (record.bootID === parts.bootID && runtime.isAlive(status.handle)) {
      await runtime.thaw(status.handle);
      registry.moveBack(sandboxID, { event: "thawed", deadlineMs: status.claim.deadlineMs });
      return "running";
    }
    // It died after its checkpoint was complete but before that was recorded, so nothing is lost.
    await checkpoints.verify(status.kept.checkpointID);
    registry.move(sandboxID, { event: "paused", pausedAtWallMs: clock.wallMs() });
    await removeRunningParts(parts, record, status.kept.runtime);
    return "paused";
  } catch (error) {
    log.error({ err: error, sandboxID }, "a sandbox died while it was being paused and ends");
  }
  await ends.end(sandboxID, "node_lost");
  return "ended";
}

/** `isRouted`: the network was adopted while the record was quarantined. */
async function adopt(parts: RecoverParts, record: SandboxRecord, isRouted: boolean): Promise<Outcome> {
  const { networks, ends, pool, log } = parts;
  const { status, sandboxID } = record;
  if (status.state !== "warm" && status.state !== "running") return "ended";
  if (record.bootID !== parts.bootID || parts.isLost) {
    await ends.end(sandboxID, "node_lost");
    return "ended";
  }
  const runtime = parts.drivers.named(status.handle.runtime);
  if (!runtime.isAlive(status.handle)) {
    await ends.end(sandboxID, await runtime.deathReason(status.handle).catch(() => "crashed" as const));
    return "ended";
  }
  // A snapshot of files may have been interrupted while the sandbox was frozen; a thaw has no effect on a running one.
  await runtime.thaw(status.handle).catch((error: unknown) => log.error({ err: error, sandboxID }, "a live sandbox could not be thawed"));
  const network = status.handle.network;
  const egress = status.state === "running" ? status.claim.egress : openEgress;
  try {
    if (network !== undefined && !isRouted) await networks?.adopt(network, egress);
  } catch (error) {
    log.error({ err: error, sandboxID }, "the network of a live sandbox is gone; the sandbox cannot be reached and ends");
    await ends.end(sandboxID, "node_lost");
    return "ended";
  }
  if (isRunning(record)) {
    await renewToken(parts, record);
    return "adopted";
  }
  if (pool.adopt(record)) return "warm";
  await ends.end(sandboxID, "killed");
  return "ended";
}

/** The seed may have changed since the last start, and envd must then refuse the old token. */
async function renewToken({ identities, log }: RecoverParts, record: SandboxRecord): Promise<void> {
  if (!isRunning(record) || !record.status.claim.secure) return;
  try {
    await identities.sendToken(record, record.status.handle);
  } catch (error) {
    // The proxy checks the token in any case, so a sandbox with a busy envd need not end.
    log.warn({ err: error, sandboxID: record.sandboxID }, "envd of an adopted sandbox did not accept its token");
  }
}

/**
 * Removes checkpoints that no record refers to, left by a kill before the record or between it and the removal. While a record is unreadable, its
 * references are unknown and nothing is removed.
 */
async function clearCheckpoints(parts: RecoverParts): Promise<number> {
  const { home, drivers, checkpoints, networks, quarantined, quarantine, log } = parts;
  const { inUse, envds, known } = inUseOf(parts);
  const strays = await checkpoints.strays(inUse);
  if (quarantine.isBlind) {
    log.warn("a record cannot be read: checkpoints, networks and programs that no other record names are kept, as it may need them");
    quarantined.remember({ checkpoints: strays, networks: (await networks?.orphans()) ?? [] });
    return 0;
  }
  sweepEnvd(home, envds);
  for (const checkpointID of strays) await checkpoints.remove(checkpointID);
  const directories = known.map(({ directory, status }) => ("handle" in status && status.handle !== undefined ? status.handle.directory : directory));
  await inParallel([...inUse], CONCURRENCY, async (checkpointID) => {
    const checkpoint = await checkpoints.find(checkpointID).catch(() => undefined);
    if (checkpoint !== undefined) directories.push(checkpoint.directory);
  });
  for (const runtime of drivers.runtimes.values()) await runtime.sweepPrograms(directories);
  return strays.length;
}

function inUseOf({ envd: ownEnvd, records, registry, unusable, templateIndex }: RecoverParts) {
  const inUse = new Set([...templateIndex.checkpointed()].map((each) => each.checkpointID));
  const envds = new Set([ownEnvd, ...templateIndex.envds()]);
  const known = [...registry.all(), ...unusable.all()];
  for (const { envd, status } of known) {
    envds.add(envd);
    if ("kept" in status && status.kept !== undefined) inUse.add(status.kept.checkpointID);
  }
  for (const { checkpointID, envd } of records.snapshots.list({})) {
    inUse.add(checkpointID);
    envds.add(envd);
  }
  return { inUse, envds, known };
}

/** Removes parts without a record, which a kill between two steps left (I3). */
async function clearOrphans({ home, registry, unusable, drivers, networks, quarantine, log }: RecoverParts): Promise<number> {
  let count = 0;
  // A sandbox that was resumed in a precreated one runs under that one's id.
  const running = new Set(
    [...registry.all(), ...unusable.all()].flatMap(({ status }) => ("handle" in status && status.handle ? [status.handle.runtimeID] : [])),
  );
  const isKnown = (id: string) => running.has(id) || registry.get(id) !== undefined || unusable.has(id) || quarantine.find("sandbox", id) !== undefined;
  for (const runtime of drivers.runtimes.values()) {
    const orphans = (await runtime.list()).filter((id) => !isKnown(id));
    count += orphans.length;
    await inParallel(orphans, CONCURRENCY, (runtimeID) =>
      runtime
        .destroy({ runtimeID, directory: `${home}/sandboxes/${runtimeID}` })
        .catch((error: unknown) =>
          quarantine.add({ kind: "sandbox", name: runtimeID, reason: `it has no record, and its parts resist: ${asFailure(error).message}` }),
        ),
    );
  }
  // An unreadable record may name any of the networks.
  const slots = quarantine.isBlind ? [] : ((await networks?.orphans()) ?? []);
  await inParallel(slots, CONCURRENCY, async (netns) => {
    await networks?.removeOrphan(netns).catch((error: unknown) => log.error({ err: error, netns }, "a network without a sandbox could not be removed"));
  });
  return count + slots.length;
}
