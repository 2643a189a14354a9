// Opens everything by which snapshots and paused sandboxes leave and reach a node: files, object storage if configured, and other nodes.
// Longer than 300 lines: the composition of this folder reads top to bottom in one place.
import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Durability } from "@svc/kit/database.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Metrics } from "@svc/kit/metrics.ts";
import { openObjects } from "@svc/kit/objects/open-objects.ts";
import type { ObjectsSettings } from "@svc/kit/objects/settings.ts";
import type { RawScope } from "@svc/kit/serve.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import type { InitKeys } from "../agent/init-keys.ts";
import type { Report } from "../observe/open-observe.ts";
import type { Checkpoints } from "../records/checkpoints.ts";
import type { Quarantine } from "../records/quarantine.ts";
import type { Registry } from "../records/registry.ts";
import type { Snapshots } from "../records/snapshots.ts";
import type { SandboxRecord } from "../records/state.ts";
import type { Runtime, RuntimeName } from "../runtime/runtime.ts";
import type { Templates } from "../template/open-templates.ts";
import { listedBuilt } from "../template/show.ts";
import type { Template, TemplateSource } from "../template/template.ts";
import { openBases } from "./bases.ts";
import { openChunkStore } from "./chunk-store.ts";
import { openChunkThread } from "./chunk-thread.ts";
import { type CollectedChunks, collectChunks, endCollection } from "./collect-chunks.ts";
import { deploymentOf, storageIDOf } from "./deployment-key.ts";
import { openDrops } from "./drops.ts";
import { type Catalog, type Exports, openExports, type Sharing } from "./exports.ts";
import { openFromNodes } from "./from-nodes.ts";
import { openLocalChunks } from "./local-chunks.ts";
import type { Neighbours } from "./neighbour.ts";
import { offerRoutes } from "./offer-routes.ts";
import { openOffers } from "./offers.ts";
import { openPacks } from "./packs.ts";
import { type Peer, peerRoutes } from "./peer.ts";
import type { SnapshotsSettings } from "./settings.ts";
import { openSnapshotFiles, type SnapshotFiles } from "./snapshot-files.ts";
import { openStored, partsOf, type Stored } from "./stored.ts";
import { openStoredTemplates } from "./stored-templates.ts";
import { openTemplateExports, type TemplateExports } from "./template-exports.ts";
import { BUILD_ID } from "./template-manifest.ts";
import { openTransferMetrics } from "./transfer-metrics.ts";

// $SVC_HOME/snapshot-transfer/node-id        names this home in object storage
//                            known/         cached descriptions of folders that do not change (packs.ts)
//                            exported/      what this home has in object storage (exports.ts)
//                            templates/     the same for its templates (template-exports.ts)
//                            in-*, pack-*   in progress; the next start removes them

export type TransferOptions = {
  readonly home: string;
  readonly settings: { readonly snapshots: SnapshotsSettings; readonly objects: ObjectsSettings; readonly durability: Durability };
  readonly env: NodeJS.ProcessEnv;
  /** The keys by which envds authenticate their nodes; the nodes of a deployment share the current one. */
  readonly initKeys: InitKeys;
  readonly bootID: string;
  readonly spawner: Spawner;
  readonly checkpoints: Checkpoints;
  readonly registry: Registry;
  readonly snapshots: Snapshots;
  readonly quarantine: Pick<Quarantine, "find">;
  readonly templates: Pick<Templates, "builder" | "images" | "index" | "dropCopy" | "envdVersion" | "snapshots">;
  readonly setUp: TemplateSource;
  readonly runtimes: ReadonlyMap<RuntimeName, Pick<Runtime, "program">>;
  /** Given if other nodes may take over exported sandboxes; it is notified of exports and ends. */
  readonly sharing: Sharing | undefined;
  /** Given in a deployment, which lists stored snapshots and templates there. */
  readonly catalog: Catalog | undefined;
  readonly nodeID: () => string;
  readonly apiKey: string;
  /** Undefined if the node knows no other nodes. */
  readonly neighbours: Neighbours | undefined;
  readonly metrics: Metrics;
  readonly report: Report;
  readonly log: Log;
};

export interface SnapshotTransfer {
  readonly files: SnapshotFiles;
  /** Undefined without object storage, and so is `exports`. */
  readonly stored: Pick<Stored, "exportSandbox" | "exportSnapshot" | "dropSnapshot"> | undefined;
  readonly templates: TemplateTransfer;
  readonly exports: Exports | undefined;
  /** True if there is no object storage, so that `fetch` asks the other nodes. */
  readonly isFedByNodes: boolean;
  /** Reacts to events of sandboxes and snapshots with exports and deletions in the background. */
  readonly follow: Report;
  /** Called after a snapshot or pause; waits for object storage if settings require that before the answer. */
  untilDurable(id: string): Promise<void>;
  /**
   * Imports another node's paused sandbox by its exported manifest; it is recorded here as paused when this returns. `own` is called once all its data
   * is here, and ensures that the other node does not resume it. `peer` is that node if it may be up.
   * @throws SNAPSHOT_UNSUITABLE, SNAPSHOT_DAMAGED, SNAPSHOT_NOT_FOUND, …
   */
  importSandbox(manifest: string, own: () => Promise<void>, peer?: Peer): Promise<SandboxRecord>;
  /** Reads the details of another node's paused sandbox. @throws as `importSandbox`. */
  readonly readSandbox: Stored["readSandbox"];
  /** Ends a sandbox that this node has taken over in etcd without fetching it. */
  endSandbox(manifest: string): Promise<void>;
  /** Forgets a paused sandbox that this other node has taken over; its data in object storage belongs to that node. */
  releaseSandbox(sandboxID: string, nodeID: string): Promise<void>;
  /**
   * Fetches a snapshot or a build of a template, by id, name or NAME:TAG, from object storage, or without it from another node; returns the id or name
   * by which it is found here, or undefined. @throws what `receive` and `FromNodes.fetch` throw.
   */
  fetch(asked: string): Promise<string | undefined>;
  collect(): Promise<CollectedChunks | undefined>;
  /** True if there is object storage. */
  readonly hasStorage: boolean;
  /** Looks now for copies whose originals were deleted on their origin nodes. */
  dropOver(): Promise<void>;
  /** Adds the routes for other nodes to the `raw` scope of serve(). */
  routes(scope: RawScope): void;
  /** Called once sandboxes can be paused and resumed. */
  start(): Promise<void>;
  close(): Promise<void>;
}

/** Transfers this node's templates to object storage, and manages copies of other nodes' templates. */
export type TemplateTransfer = Pick<TemplateExports, "soon" | "shared" | "keep"> & {
  /**
   * Called after a change of tags; waits for object storage if settings require that. @throws OBJECTS_UNAVAILABLE; the change stays in effect here.
   */
  untilDurable(templateID: string): Promise<void>;
  /** Deletes copies of a template and, with `isOrphan`, its data in object storage. Returns true if there was any. */
  drop(asked: string, isOrphan: boolean): Promise<boolean>;
};

const MIB = 2 ** 20;
const LEFT = /^(in|pack)-/;

export async function openSnapshotTransfer(options: TransferOptions): Promise<SnapshotTransfer> {
  const { home, settings, initKeys, spawner, checkpoints, registry, snapshots, templates, setUp, runtimes, report, log } = options;
  const folder = join(home, "snapshot-transfer");
  await mkdir(folder, { recursive: true, mode: 0o700 });
  for (const name of await readdir(folder)) if (LEFT.test(name)) await rm(join(folder, name), { recursive: true, force: true });
  if (settings.snapshots.durable && settings.objects.url === "") fail("SETTING_INVALID", "setting snapshots.durable: true needs objects.url, which is empty");

  const thread = openChunkThread();
  const packs = await openPacks(folder, spawner, thread);
  const deployment = deploymentOf(initKeys);
  const { layers, layersInHand, builds, copies } = templates.builder;
  const metrics = openTransferMetrics(options.metrics, () => (exports?.waiting ?? 0) + (templateExports?.waiting ?? 0));
  const describing = { home, unnamedKey: initKeys.unnamed, checkpoints, images: templates.images, layers, setUp, thread, packs };
  const here = {
    home,
    isOurs: initKeys.has,
    get runtimes() {
      return new Set(runtimes.keys());
    },
    program: async (name: RuntimeName) => runtimes.get(name)?.program(),
  };
  const maxBytes = settings.snapshots.import_mb * MIB;
  const receiving = {
    folder,
    here,
    currentKey: initKeys.current,
    maxBytes,
    checkpoints,
    images: templates.images,
    layers,
    layersInHand,
    setUp,
    packs,
    thread,
    spawner,
  };
  const { nodeID, neighbours, catalog } = options;
  const common = { nodeID, checkpoints, describing, receiving, thread, deployment, metrics, report, log };
  const files = openSnapshotFiles({ ...common, snapshots, templateIndex: templates.index });

  const objects = settings.objects.url === "" ? undefined : await openObjects(settings.objects, settings.durability, options.env);
  const { concurrency, bandwidth_mb_per_second } = settings.objects;
  const store = objects && openChunkStore({ objects, concurrency, bytesPerSecond: bandwidth_mb_per_second * 1e6, count: metrics.count });
  const bases = store && openBases({ store, packs, thread, deployment });
  const stored = objects && store && bases && openStored({ ...common, bases, home, bootID: options.bootID, objects, store, registry, snapshots, files });
  const exports =
    stored && (await openExports({ folder, stored, registry, snapshots, quarantine: options.quarantine, sharing: options.sharing, catalog, report, log }));
  const storedTemplates = objects && store && bases && openStoredTemplates({ ...common, bases, objects, store, images: templates.images, copies });
  const { dropCopy } = templates;
  const listed = (templateID: string) => {
    const template = builds.template(templateID);
    return template && listedBuilt(template, builds.of(templateID), templates.index.spawns(templateID), templates.envdVersion);
  };
  const templateExports =
    storedTemplates && (await openTemplateExports({ folder, stored: storedTemplates, builds, copies, dropCopy, catalog, listed, report, log }));
  const storageID = await storageIDOf(folder);
  const remove = templates.snapshots.remove;
  const drops = openDrops({ copies, snapshots, dropCopy, deleteSnapshot: remove, exports, stored, storedTemplates, catalog });
  const localChunks = await openLocalChunks(folder, checkpoints, thread);
  const between = { ...common, images: templates.images, copies, snapshots, localChunks, concurrency, bytesPerSecond: bandwidth_mb_per_second * 1e6 };
  const offers = openOffers({ ...between, builds, quarantine: options.quarantine });
  const hasStored = async (id: string) => BUILD_ID.test(id) || (await stored?.hasSnapshot(id)) === true;
  /** Keeps a copy whose data is in object storage, whatever the origin node says, since it has not been deleted there. */
  const drop = async (id: string) => (stored !== undefined && (await hasStored(id)) ? false : drops.dropOne(id));
  const fromNodes = neighbours && openFromNodes({ ...between, apiKey: options.apiKey, neighbours, files, drop });
  let timer: NodeJS.Timeout | undefined;
  let collecting: Promise<CollectedChunks> | undefined;

  async function collect(): Promise<CollectedChunks | undefined> {
    if (objects === undefined) return undefined;
    collecting ??= metrics
      .timed("collect", () => collectChunks(objects, { nodeID: storageID, graceMs: settings.objects.collect_grace_seconds * 1000 }))
      .finally(() => {
        collecting = undefined;
      });
    return collecting;
  }

  /** Sends the bases early, so that the first pause does not wait for them. */
  async function sendBases(): Promise<void> {
    const newest = new Map<string, Template>();
    for (const each of setUp.list())
      if (each.image.binds.length === 0 && each.createdAt >= (newest.get(each.name)?.createdAt ?? "")) newest.set(each.name, each);
    for (const { image } of newest.values()) await bases?.file(await packs.contentOf(image.rootfs), image.rootfs);
  }

  return {
    files,
    stored,
    exports,
    isFedByNodes: neighbours !== undefined && objects === undefined,
    templates: {
      soon: (templateID) => templateExports?.soon(templateID),
      shared: (templateID) => templateExports?.shared(templateID) ?? [],
      async keep(build, tags, publish) {
        if (settings.snapshots.durable && templateExports !== undefined) await templateExports.keep(build, tags, publish);
        else publish();
      },
      async untilDurable(templateID) {
        if (settings.snapshots.durable) await templateExports?.now(templateID);
      },
      drop: drops.drop,
    },
    follow(type, { sandboxID, templateID }, details) {
      if (exports === undefined) return;
      if ((type === "sandbox.paused" || type === "sandbox.network_changed") && sandboxID !== undefined) exports.soon(sandboxID);
      if ((type === "sandbox.resumed" || type === "sandbox.ended") && sandboxID !== undefined) exports.drop(sandboxID);
      const isToSend = type === "snapshot.unnamed" || (type === "snapshot.imported" && details["from"] === "file");
      if (isToSend && templateID !== undefined) exports.soon(templateID);
      if (type === "sandbox.snapshotted") exports.soon(String(details["snapshotID"]));
      if (type === "snapshot.deleted" && templateID !== undefined) exports.drop(templateID);
    },
    untilDurable: async (id) => (settings.snapshots.durable ? exports?.now(id) : undefined),
    async importSandbox(manifest, own, peer) {
      const record = await (stored ?? withoutStorage()).importSandbox(manifest, own, peer);
      await exports?.note(record.sandboxID);
      return record;
    },
    readSandbox: async (manifest) => (stored ?? withoutStorage()).readSandbox(manifest),
    endSandbox: async (manifest) => (exports ?? withoutStorage()).end(partsOf(manifest)),
    async releaseSandbox(sandboxID, nodeID) {
      // The note goes first, so that nothing here deletes data that the other node now uses.
      await exports?.forget(sandboxID);
      await (stored ?? withoutStorage()).releaseSandbox(sandboxID, nodeID);
    },
    async fetch(asked) {
      if (stored === undefined) return fromNodes?.fetch(asked);
      const id = await stored.idOf(asked);
      if (id === undefined || BUILD_ID.test(id)) return storedTemplates?.importNamed(asked, id);
      const snapshot = await stored.importSnapshot(id);
      if (snapshot !== undefined) await exports?.note(snapshot.snapshotID);
      return snapshot?.snapshotID;
    },
    collect,
    hasStorage: objects !== undefined,
    dropOver: async () => fromNodes?.dropOver(),
    routes(scope) {
      peerRoutes(checkpoints)(scope);
      offerRoutes(offers)(scope);
    },
    async start() {
      fromNodes?.start();
      if (objects === undefined) return;
      await exports?.start();
      templateExports?.start();
      endCollection(objects, storageID).catch((error: unknown) => log.warn({ err: error }, "object storage does not answer; exports continue when it does"));
      sendBases().catch((error: unknown) => log.warn({ err: error }, "base templates could not be sent to object storage; the first export will send them"));
      const { collect_interval_seconds } = settings.objects;
      if (collect_interval_seconds === 0) return;
      timer = setInterval(() => {
        collect().then(
          (collected) => log.info({ ...collected }, "chunks collected"),
          (error: unknown) => log.error({ err: error }, "unused chunks could not be collected"),
        );
      }, collect_interval_seconds * 1000);
      timer.unref();
    },
    async close() {
      clearInterval(timer);
      await fromNodes?.close();
      await offers.close();
      await exports?.close();
      await templateExports?.close();
      await objects?.close();
      await thread.close();
    },
  };
}

const withoutStorage = (): never => fail("SETTING_INVALID", "sandboxes move between nodes through object storage: set objects.url on both");
