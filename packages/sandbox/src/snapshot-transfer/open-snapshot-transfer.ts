// Opens all by which snapshots and paused sandboxes leave a node and come to it: files, and object storage where a setting names one.
// Longer than 300 lines: the composition of this room reads top to bottom in one place.
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
import { openHeldChunks } from "./held-chunks.ts";
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
//                  known/         what was found of folders that do not change (packs.ts)
//                  exported/      what is in object storage of this home's (exports.ts)
//                  templates/     the same of its templates (template-exports.ts)
//                  in-*, pack-*   under way; the next start removes them

export type TransferOptions = {
  readonly home: string;
  readonly settings: { readonly snapshots: SnapshotsSettings; readonly objects: ObjectsSettings; readonly durability: Durability };
  readonly env: NodeJS.ProcessEnv;
  /** By which envds know their nodes; the nodes of a deployment share the current one. */
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
  /** Where others may take over what is exported here: is told what is, and what has ended. */
  readonly sharing: Sharing | undefined;
  /** Where a deployment lists what is there of snapshots and templates. */
  readonly catalog: Catalog | undefined;
  /** Of this node. */
  readonly nodeID: () => string;
  readonly apiKey: string;
  /** Undefined where the node knows of no others. */
  readonly neighbours: Neighbours | undefined;
  readonly metrics: Metrics;
  readonly report: Report;
  readonly log: Log;
};

export interface SnapshotTransfer {
  readonly files: SnapshotFiles;
  /** Absent without object storage, as `exports`. */
  readonly stored: Pick<Stored, "exportSandbox" | "exportSnapshot" | "dropSnapshot"> | undefined;
  readonly templates: TemplateTransfer;
  readonly exports: Exports | undefined;
  /** `fetch` asks the other nodes: there is no object storage. */
  readonly isFedByNodes: boolean;
  /** What an export or a collection that failed need not be asked about again: it goes on in the background. */
  readonly follow: Report;
  /** After a snapshot or a pause, where settings want it in object storage before the answer. */
  untilDurable(id: string): Promise<void>;
  /**
   * A paused sandbox of another node, by the manifest that was exported there; on record here, paused, when this returns. `own` is
   * called when all of it is here, and makes sure that the other node resumes it no more. `peer`: that node, where it may be up.
   * @throws SNAPSHOT_UNSUITABLE, SNAPSHOT_DAMAGED, SNAPSHOT_NOT_FOUND, …
   */
  importSandbox(manifest: string, own: () => Promise<void>, peer?: Peer): Promise<SandboxRecord>;
  /** What the details of a paused sandbox of another node are told by. @throws as `importSandbox`. */
  readonly readSandbox: Stored["readSandbox"];
  /** Ends what this node has taken on record, and not fetched. */
  endSandbox(manifest: string): Promise<void>;
  /** Forgets a paused sandbox that this other node has taken over; what is in object storage is that node's. */
  releaseSandbox(sandboxID: string, nodeID: string): Promise<void>;
  /**
   * A snapshot or a build of a template, by id, name or NAME:TAG, where object storage, or without it another node, has it: the id by
   * which it is found here when this returns. @throws what `receive` and `FromNodes.fetch` throw.
   */
  fetch(asked: string): Promise<string | undefined>;
  collect(): Promise<CollectedChunks | undefined>;
  /** Looks now which copies were deleted on the nodes that made them. */
  dropOver(): Promise<void>;
  /** For serve's `raw`: what other nodes read here. */
  routes(scope: RawScope): void;
  /** When sandboxes can be paused and resumed. */
  start(): Promise<void>;
  close(): Promise<void>;
}

/** This node's templates in object storage, and those of others here. */
export type TemplateTransfer = Pick<TemplateExports, "soon" | "shared" | "keep"> & {
  /** After a change of its tags, where settings want it in object storage before the answer. @throws OBJECTS_UNAVAILABLE; it is changed here all the same. */
  untilDurable(templateID: string): Promise<void>;
  /** Copies of it; and what object storage has of it, where `isOrphan`. Whether there was any. */
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
    stored && (await openExports({ folder, stored, registry, snapshots, quarantine: options.quarantine, sharing: options.sharing, catalog, log }));
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
  const held = await openHeldChunks(folder, checkpoints, thread);
  const between = { ...common, images: templates.images, copies, snapshots, held, concurrency, bytesPerSecond: bandwidth_mb_per_second * 1e6 };
  const offers = openOffers({ ...between, builds, quarantine: options.quarantine });
  const hasStored = async (id: string) => BUILD_ID.test(id) || (await stored?.hasSnapshot(id)) === true;
  /** What object storage has has not been deleted, whatever the node that made it says. */
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

  /** Before the first pause waits for them. */
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
      // The note first: without it nothing here takes away what the other node goes on with.
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
