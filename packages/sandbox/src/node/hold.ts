// Records, captures and drivers that cannot be used as things are: held with their name and reason, and taken back when they can.
import { asFailure } from "@svc/contract/failures.ts";
import type { RuntimeName } from "../runtime/runtime.ts";
import type { Node } from "./node.ts";
import type { Aside } from "./set-aside.ts";
import type { SandboxRecord } from "./state.ts";

/** Looked at together; each is a small file. */
const CONCURRENCY = 8;

/** Why the running parts of this record cannot be looked at, if so. */
export function missingDriver(node: Node, { status }: SandboxRecord): string | undefined {
  const name = "handle" in status && status.handle !== undefined ? status.handle.runtime : undefined;
  return name === undefined || node.runtimes.has(name) ? undefined : reasonOf(node, name);
}

/** Out of the registry: nothing is asked of it, and nothing of it is swept. Its network stays as it is. */
export async function hold(node: Node, record: SandboxRecord, reason: string): Promise<void> {
  const { sandboxID, status } = record;
  node.held.set(sandboxID, record);
  node.aside.add({ kind: "sandbox", name: sandboxID, reason });
  const slot = "handle" in status ? status.handle?.network : undefined;
  const egress = "claim" in status ? status.claim?.egress : undefined;
  if (slot === undefined || egress === undefined) return;
  await node.networks?.adopt(slot, egress).then(
    () => routed.add(record),
    (error: unknown) => node.log.warn({ err: error, sandboxID }, "the network of a held sandbox is gone"),
  );
}

/** Held records whose network was adopted already. */
const routed = new WeakSet<SandboxRecord>();

/** Names what needs a driver that is not there, or a capture that is not on disk. `asideOnly`: looks again at what has a name already. */
export async function noteUnusable(node: Node, asideOnly = false): Promise<void> {
  const owners: { captureID: string; aside: Omit<Aside, "reason"> }[] = [];
  const see = (kind: Aside["kind"], name: string, captureID: string, runtime: RuntimeName) => {
    if (asideOnly && node.aside.find(kind, name) === undefined) return;
    if (node.runtimes.has(runtime)) owners.push({ captureID, aside: { kind, name } });
    else node.aside.add({ kind, name, reason: reasonOf(node, runtime) });
  };
  for (const { sandboxID, status } of node.registry.all())
    if ("kept" in status && status.kept !== undefined) see("sandbox", sandboxID, status.kept.captureID, status.kept.runtime);
  for (const { snapshotID, captureID, runtime } of node.records.snapshots.list({})) see("snapshot", snapshotID, captureID, runtime);
  for (const { templateID, captureID, runtime } of node.catalogue.captured()) see("template", templateID, captureID, runtime);
  await inParallel(owners, CONCURRENCY, async ({ captureID, aside }) => {
    await node.captures.find(captureID).then(
      () => node.aside.drop(aside.kind, aside.name),
      (error: unknown) => node.aside.add({ ...aside, reason: asFailure(error).message }),
    );
  });
}

/** For the watch: what was missing may be back. `reconcile` brings a held record together with what runs. */
export async function takeBack(node: Node, reconcile: (record: SandboxRecord, isRouted: boolean) => Promise<void>): Promise<void> {
  const back = await node.reopenDrivers();
  for (const record of [...node.held.values()]) {
    const { sandboxID } = record;
    if (missingDriver(node, record) !== undefined) continue;
    node.held.delete(sandboxID);
    node.aside.drop("sandbox", sandboxID);
    node.registry.restore(record);
    await reconcile(record, routed.has(record));
  }
  await noteUnusable(node, back.length === 0);
}

function reasonOf(node: Node, name: RuntimeName): string {
  try {
    node.runtimeNamed(name);
    return "";
  } catch (error) {
    return asFailure(error).message;
  }
}

export async function inParallel<T>(items: readonly T[], concurrency: number, work: (item: T) => Promise<void>): Promise<void> {
  const queue = [...items].reverse();
  const worker = async () => {
    for (let item = queue.pop(); item !== undefined; item = queue.pop()) await work(item);
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
}
