// Quarantines records whose driver or checkpoint is missing, with the reason, and takes them back once it is there again (I21).
import { asFailure } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Networks } from "../../network/networks.ts";
import type { Checkpoints } from "../../records/checkpoints.ts";
import type { Quarantine, Quarantined } from "../../records/quarantine.ts";
import type { Registry } from "../../records/registry.ts";
import type { Snapshots } from "../../records/snapshots.ts";
import type { SandboxRecord } from "../../records/state.ts";
import type { RuntimeName } from "../../runtime/runtime.ts";
import type { TemplateSource } from "../../template/template.ts";
import type { Drivers } from "./drivers.ts";

/** Checkpoints read concurrently; each is a small file. */
const CONCURRENCY = 8;

export type UnusableParts = {
  readonly drivers: Drivers;
  readonly registry: Pick<Registry, "all" | "restore">;
  readonly snapshots: Pick<Snapshots, "list">;
  readonly templateIndex: Pick<TemplateSource, "checkpointed">;
  readonly checkpoints: Pick<Checkpoints, "find">;
  readonly networks: Pick<Networks, "adopt"> | undefined;
  readonly quarantine: Quarantine;
  readonly log: Log;
};

/** Brings a record together with what runs. `isRouted`: its network was adopted while the record was quarantined. */
export type Reconcile = (record: SandboxRecord, isRouted: boolean) => Promise<void>;

export interface Unusable {
  /** Returns why the running parts of this record cannot be examined; undefined where they can. */
  missingDriver(record: SandboxRecord): string | undefined;
  /** Keeps the record out of the registry, so that no request reaches it and nothing of it is swept. Its network stays as it is. */
  add(record: SandboxRecord, reason: string): Promise<void>;
  /** Quarantines everything that needs a missing driver or a checkpoint that is not on disk. */
  noteUnusable(): Promise<void>;
  /** Called by the watch: takes back records whose driver is there again; `reconcile` brings each together with what runs. */
  takeBack(reconcile: Reconcile): Promise<void>;
  /** Puts a record back into the registry unchanged, in order to end it. */
  release(sandboxID: string): void;
  has(sandboxID: string): boolean;
  /** The quarantined records; the files and networks they name stay theirs. */
  all(): Iterable<SandboxRecord>;
}

export function openUnusable(parts: UnusableParts): Unusable {
  const { drivers, registry, networks, quarantine, log } = parts;
  const records = new Map<string, SandboxRecord>();
  /** The ids of records whose network is adopted already. */
  const routed = new Set<string>();

  function missingDriver({ status }: SandboxRecord): string | undefined {
    const name = "handle" in status && status.handle !== undefined ? status.handle.runtime : undefined;
    return name === undefined || drivers.runtimes.has(name) ? undefined : reasonOf(drivers, name);
  }

  return {
    missingDriver,
    async add(record, reason) {
      const { sandboxID, status } = record;
      records.set(sandboxID, record);
      quarantine.add({ kind: "sandbox", name: sandboxID, reason });
      const slot = "handle" in status ? status.handle?.network : undefined;
      const egress = "claim" in status ? status.claim?.egress : undefined;
      if (slot === undefined || egress === undefined) return;
      await networks?.adopt(slot, egress).then(
        () => routed.add(sandboxID),
        (error: unknown) => log.warn({ err: error, sandboxID }, "the network of a quarantined sandbox is gone"),
      );
    },
    noteUnusable: () => noteUnusable(parts, false),
    async takeBack(reconcile) {
      const back = await drivers.reopen();
      for (const record of [...records.values()]) {
        const { sandboxID } = record;
        if (missingDriver(record) !== undefined) continue;
        records.delete(sandboxID);
        quarantine.drop("sandbox", sandboxID);
        registry.restore(record);
        await reconcile(record, routed.delete(sandboxID));
      }
      await noteUnusable(parts, back.length === 0);
    },
    release(sandboxID) {
      const record = records.get(sandboxID);
      if (record !== undefined && records.delete(sandboxID)) registry.restore(record);
    },
    has: (sandboxID) => records.has(sandboxID),
    all: () => records.values(),
  };
}

/** With `quarantinedOnly`, examines only what is quarantined already. */
async function noteUnusable({ drivers, registry, snapshots, templateIndex, checkpoints, quarantine }: UnusableParts, quarantinedOnly: boolean): Promise<void> {
  const owners: { checkpointID: string; quarantine: Omit<Quarantined, "reason"> }[] = [];
  const see = (kind: Quarantined["kind"], name: string, checkpointID: string, runtime: RuntimeName) => {
    if (quarantinedOnly && quarantine.find(kind, name) === undefined) return;
    if (drivers.runtimes.has(runtime)) owners.push({ checkpointID, quarantine: { kind, name } });
    else quarantine.add({ kind, name, reason: reasonOf(drivers, runtime) });
  };
  for (const { sandboxID, status } of registry.all())
    if ("kept" in status && status.kept !== undefined) see("sandbox", sandboxID, status.kept.checkpointID, status.kept.runtime);
  for (const { snapshotID, checkpointID, runtime } of snapshots.list({})) see("snapshot", snapshotID, checkpointID, runtime);
  for (const { templateID, checkpointID, runtime } of templateIndex.checkpointed()) see("template", templateID, checkpointID, runtime);
  await inParallel(owners, CONCURRENCY, async ({ checkpointID, quarantine: owner }) => {
    await checkpoints.find(checkpointID).then(
      () => quarantine.drop(owner.kind, owner.name),
      (error: unknown) => quarantine.add({ ...owner, reason: asFailure(error).message }),
    );
  });
}

function reasonOf(drivers: Drivers, name: RuntimeName): string {
  try {
    drivers.named(name);
    return "";
  } catch (error) {
    return asFailure(error).message;
  }
}

export async function inParallel<T>(items: readonly T[], concurrency: number, work: (item: T) => Promise<void>): Promise<void> {
  const pending = [...items].reverse();
  const worker = async () => {
    for (let item = pending.pop(); item !== undefined; item = pending.pop()) await work(item);
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
}
