// Snapshots and paused sandboxes in object storage: exported by the node that has them, imported by any node of the deployment.
import { Failure, fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Objects } from "@svc/kit/objects/objects.ts";
import type { Report } from "../observe/open-observe.ts";
import type { Checkpoints } from "../records/checkpoints.ts";
import { isPaused, type Registry } from "../records/registry.ts";
import { type NamedSnapshot, type Snapshots, withTag } from "../records/snapshots.ts";
import type { SandboxRecord } from "../records/state.ts";
import type { Bases } from "./bases.ts";
import { type ChunkStore, MANIFESTS, type Sent } from "./chunk-store.ts";
import type { ChunkThread } from "./chunk-thread.ts";
import { type DescribeParts, describe, readChunk, type Subject } from "./describe.ts";
import { type Deployment, othersSecrets, type ReadManifest, readManifest, writeManifest } from "./manifest.ts";
import { type FromPeer, openPeer, type Peer } from "./peer.ts";
import { initKeyOf, type Received, type ReceiveParts, receive } from "./receive.ts";
import type { SnapshotFiles } from "./snapshot-files.ts";
import { keptAs, pausedRecordOf, SNAPSHOT_ID, sandboxSubject, shownOf, snapshotSubject } from "./subjects.ts";
import { BUILD_ID } from "./template-manifest.ts";
import type { TransferMetrics } from "./transfer-metrics.ts";

// manifests/snapshots/<snapshotID>
// manifests/sandboxes/<sandboxID>/<checkpointID>    a new one for each pause, so that a name always means one state
// names/<name>/<tag>                             the id of the snapshot or template build that has the name

/** `manifest` is the key by which another node imports it. */
export type Exported = Sent & { readonly manifest: string };

export interface Stored {
  /** All that a start on another node needs is stored when this returns. @throws SNAPSHOT_NOT_FOUND, OBJECTS_UNAVAILABLE, SNAPSHOT_DAMAGED. */
  exportSnapshot(asked: string): Promise<Exported>;
  /** Resolves an id, a name or NAME:TAG to the id of a snapshot or of a template's build. */
  idOf(asked: string): Promise<string | undefined>;
  /** Like `idOf`, and also returns any build of a template, by its name or id, that has only other tags. */
  anyOf(asked: string): Promise<string | undefined>;
  /** Returns undefined if it is neither here nor in object storage. @throws what `receive` throws. */
  importSnapshot(snapshotID: string): Promise<NamedSnapshot | undefined>;
  hasSnapshot(snapshotID: string): Promise<boolean>;
  /** Deletes the snapshot with its names; returns true if it was stored. */
  dropSnapshot(snapshotID: string): Promise<boolean>;
  /**
   * Exports a paused sandbox in its latest state. If it is resumed meanwhile, the export is deleted again.
   * @throws SANDBOX_NOT_FOUND, SANDBOX_RUNNING, OBJECTS_UNAVAILABLE, SNAPSHOT_DAMAGED, CHECKPOINT_UNAVAILABLE.
   */
  exportSandbox(sandboxID: string): Promise<Exported>;
  /**
   * Imports another node's paused sandbox by the manifest that `exportSandbox` returned there; it is recorded here when this returns. `own` is called
   * once all its data is here, and ensures that the other node does not resume it; if it throws, nothing stays here.
   * @throws what `receive` and `own` throw, SANDBOX_RUNNING if the sandbox is already here.
   */
  importSandbox(manifest: string, own: () => Promise<void>, peer?: Peer): Promise<SandboxRecord>;
  /** Reads the sandbox's details without importing it. @throws SNAPSHOT_NOT_FOUND, SNAPSHOT_DAMAGED, SNAPSHOT_UNSUITABLE. */
  readSandbox(manifest: string): Promise<ReturnType<typeof shownOf>>;
  dropSandbox(sandboxID: string, checkpointID: string): Promise<void>;
  /** Forgets a paused sandbox that another node has taken over; object storage is left unchanged. @throws SANDBOX_NOT_FOUND, SANDBOX_RUNNING. */
  releaseSandbox(sandboxID: string, nodeID: string): Promise<void>;
}

export type StoredParts = {
  readonly home: string;
  readonly nodeID: () => string;
  readonly bootID: string;
  readonly objects: Objects;
  readonly store: ChunkStore;
  readonly registry: Pick<Registry, "get" | "owned" | "add" | "release">;
  readonly snapshots: Pick<Snapshots, "find" | "names">;
  readonly checkpoints: Pick<Checkpoints, "holding" | "remove">;
  readonly files: Pick<SnapshotFiles, "keep">;
  readonly bases: Bases;
  readonly describing: DescribeParts;
  readonly receiving: ReceiveParts;
  readonly thread: ChunkThread;
  readonly deployment: Deployment;
  readonly metrics: Pick<TransferMetrics, "timed">;
  readonly report: Report;
  readonly log: Log;
};

const NAME_PART = /^[A-Za-z0-9_][\w.-]*$/;
const MANIFEST_KEY = /^sandboxes\/i[a-z0-9]{19,62}\/c[0-9a-f]{24}$/;
const MAX_NAME_BYTES = 1024;

const snapshotKey = (snapshotID: string) => `snapshots/${snapshotID}`;
const sandboxKey = (sandboxID: string, checkpointID: string) => `sandboxes/${sandboxID}/${checkpointID}`;
const nameKey = (name: string) => `names/${withTag(name).replace(":", "/")}`;

export function partsOf(manifest: string): { readonly sandboxID: string; readonly checkpointID: string } {
  if (!MANIFEST_KEY.test(manifest)) fail("INVALID_REQUEST", `manifest: expected sandboxes/ID/CHECKPOINT, got ${JSON.stringify(manifest.slice(0, 100))}`);
  const [, sandboxID = "", checkpointID = ""] = manifest.split("/");
  return { sandboxID, checkpointID };
}

export function openStored(parts: StoredParts): Stored {
  const { home, bootID, objects, store, registry, snapshots, checkpoints, thread, deployment, metrics, report, log } = parts;
  const arriving = new Set<string>();
  const receiving = new Map<string, Promise<NamedSnapshot | undefined>>();

  function send(manifest: string, subject: Subject): Promise<Exported> {
    return checkpoints.holding(subject.checkpointID, () =>
      metrics.timed("export", async () => {
        const begin = performance.now();
        await using described = await describe(parts.describing, subject, parts.bases.file);
        const sent = await store.send(manifest, writeManifest(described.manifest, deployment.key), described.sources, (chunk) => readChunk(thread, chunk));
        log.info({ manifest, ...sent, ms: Math.round(performance.now() - begin) }, "exported to object storage");
        return { manifest, ...sent };
      }),
    );
  }

  function readOwn(written: Buffer, name: string): ReadManifest {
    const read = readManifest(written, deployment);
    return read.isOwn ? read : othersSecrets(`${name} in ${objects.url}`);
  }
  const take = (read: ReadManifest, checkpointID?: string, peer?: FromPeer): Promise<Received> =>
    metrics.timed("import", () => receive(parts.receiving, read, (placing) => store.fetch(placing, peer), checkpointID));

  async function idOf(asked: string): Promise<string | undefined> {
    if (SNAPSHOT_ID.test(asked) || BUILD_ID.test(asked)) return asked;
    const id = await idUnder(asked);
    // A name in object storage may be outdated: a node that did not know the newer snapshot may have exported an older one last.
    const named = id !== undefined && SNAPSHOT_ID.test(id) ? snapshots.names.get(withTag(asked)) : undefined;
    return named === undefined ? id : named.snapshotID || undefined;
  }

  async function idUnder(asked: string): Promise<string | undefined> {
    if (
      !withTag(asked)
        .split(":")
        .every((part) => NAME_PART.test(part))
    )
      return undefined;
    return (await objects.get(nameKey(asked), MAX_NAME_BYTES))?.toString("utf8");
  }

  async function anyOf(name: string): Promise<string | undefined> {
    const found = await idOf(name);
    if (found !== undefined || !NAME_PART.test(name)) return found;
    for await (const { key } of objects.list(`names/${name}/`)) {
      const id = (await objects.get(key, MAX_NAME_BYTES))?.toString("utf8");
      if (id !== undefined && BUILD_ID.test(id)) return id;
    }
    return undefined;
  }

  async function importSnapshot(snapshotID: string): Promise<NamedSnapshot | undefined> {
    const known = snapshots.find(snapshotID);
    if (known !== undefined) return known;
    const written = await store.manifest(snapshotKey(snapshotID));
    if (written === undefined) return undefined;
    const read = readOwn(written, snapshotKey(snapshotID));
    if (read.manifest.snapshot?.snapshotID !== snapshotID) fail("SNAPSHOT_DAMAGED", `${snapshotKey(snapshotID)} in ${objects.url} belongs to another snapshot`);
    return parts.files.keep(read, await take(read), "storage");
  }

  async function dropSnapshot(snapshotID: string): Promise<boolean> {
    const written = await store.manifest(snapshotKey(snapshotID));
    if (written === undefined) return false;
    const { names = [] } = readOwn(written, snapshotKey(snapshotID)).manifest.snapshot ?? {};
    for (const name of names) if ((await idUnder(name)) === snapshotID) await objects.delete(nameKey(name));
    await store.drop(snapshotKey(snapshotID));
    return true;
  }

  async function readPaused(manifest: string): Promise<ReadManifest> {
    const { sandboxID, checkpointID } = partsOf(manifest);
    const written = (await store.manifest(manifest)) ?? fail("SNAPSHOT_NOT_FOUND", `${manifest} is not in ${objects.url}: its sandbox was resumed or ended`);
    const read = readOwn(written, manifest);
    if (read.manifest.sandbox?.sandboxID !== sandboxID || read.manifest.captureID !== checkpointID)
      fail("SNAPSHOT_DAMAGED", `${manifest} in ${objects.url} belongs to another sandbox`);
    return read;
  }

  return {
    async exportSnapshot(asked) {
      const snapshot = snapshots.find(asked) ?? fail("SNAPSHOT_NOT_FOUND", `snapshot '${asked}' was not found; \`svc snapshot list\` lists them`);
      const exported = await send(snapshotKey(snapshot.snapshotID), snapshotSubject(snapshot, parts.nodeID()));
      // The name moves to the newest snapshot only after its export is complete, so that a name never leads to an incomplete snapshot.
      for (const name of snapshots.find(snapshot.snapshotID)?.names ?? []) await objects.put(nameKey(name), Buffer.from(snapshot.snapshotID));
      if (snapshots.find(snapshot.snapshotID) === undefined) await dropSnapshot(snapshot.snapshotID);
      report("snapshot.exported", { templateID: snapshot.snapshotID }, { sentBytes: exported.sentBytes, keptBytes: exported.keptBytes });
      return exported;
    },
    idOf,
    anyOf,
    hasSnapshot: async (snapshotID) => (await objects.head(`${MANIFESTS}${snapshotKey(snapshotID)}`)) !== undefined,
    async importSnapshot(snapshotID) {
      if (!SNAPSHOT_ID.test(snapshotID)) return undefined;
      // Concurrent creates share one fetch.
      const underWay = receiving.get(snapshotID) ?? importSnapshot(snapshotID).finally(() => receiving.delete(snapshotID));
      receiving.set(snapshotID, underWay);
      return underWay;
    },
    dropSnapshot,
    async exportSandbox(sandboxID) {
      const record = registry.owned(sandboxID);
      if (!isPaused(record)) throw new Failure("SANDBOX_RUNNING", `sandbox '${sandboxID}' is ${record.status.state}; pause it, then export it`);
      const { checkpointID } = record.status.kept;
      const exported = await send(sandboxKey(sandboxID, checkpointID), sandboxSubject(record));
      if (keptAs(registry.get(sandboxID)) !== checkpointID) {
        await store.drop(sandboxKey(sandboxID, checkpointID));
        fail("SANDBOX_RUNNING", `sandbox '${sandboxID}' was resumed or ended while it was exported`);
      }
      return exported;
    },
    readSandbox: async (manifest) => shownOf((await readPaused(manifest)).manifest),
    async importSandbox(manifest, own, peer) {
      const { sandboxID, checkpointID } = partsOf(manifest);
      if (registry.get(sandboxID) !== undefined) fail("SANDBOX_RUNNING", `sandbox '${sandboxID}' is already on this node`);
      const read = await readPaused(manifest);
      if (arriving.has(sandboxID)) fail("SANDBOX_CHANGING_STATE", `sandbox '${sandboxID}' is already moving to this node`);
      arriving.add(sandboxID);
      // The checkpoint keeps the id that it has in object storage, so that it need not be exported again.
      const received = await take(read, checkpointID, peer && openPeer(peer, read.manifest)).finally(() => arriving.delete(sandboxID));
      try {
        const record = pausedRecordOf(read.manifest, received, { home, bootID, initKey: initKeyOf(parts.receiving, read.manifest) });
        await own();
        registry.add(record);
        log.info({ sandboxID, movedBytes: received.movedBytes }, "a paused sandbox was imported");
        return record;
      } catch (error) {
        await checkpoints.remove(received.checkpointID);
        throw error;
      }
    },
    dropSandbox: (sandboxID, checkpointID) => store.drop(sandboxKey(sandboxID, checkpointID)),
    async releaseSandbox(sandboxID, nodeID) {
      const record = registry.owned(sandboxID);
      if (!isPaused(record)) fail("SANDBOX_RUNNING", `sandbox '${sandboxID}' is ${record.status.state}; only a paused one can be handed over`);
      registry.release(sandboxID, nodeID);
      await checkpoints.remove(record.status.kept.checkpointID);
    },
  };
}
