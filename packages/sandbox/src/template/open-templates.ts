// Opens everything that a node has of templates, in order: database, layers, images, uploads, builds; and closes it.
import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { StoreOptions } from "@svc/kit/database.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import type { Checkpoints } from "../records/checkpoints.ts";
import type { Quarantine } from "../records/quarantine.ts";
import { openBuildCache } from "./build-cache.ts";
import { openBuildLog } from "./build-log.ts";
import { type BuildQueue, openBuildQueue, type ReportBuild } from "./build-queue.ts";
import type { Builder, BuildSandboxes, KeepBuild } from "./builder.ts";
import { openBuilds } from "./builds.ts";
import { type Collected, collect } from "./collect.ts";
import { openCopies } from "./copies.ts";
import { openDatabase } from "./database.ts";
import { type Images, openImages } from "./images.ts";
import { openLayers } from "./layers.ts";
import { splitReference } from "./reference.ts";
import type { TemplateSettings } from "./settings.ts";
import type { Template, TemplateSource } from "./template.ts";
import { openTemplateIndex, type SnapshotLookup, type TemplateIndex } from "./template-index.ts";
import { openUploads } from "./uploads.ts";

const MIB = 1024 * 1024;
const COLLECT_EVERY_MS = 10 * 60_000;

export type TemplatesOptions = {
  readonly home: string;
  readonly settings: TemplateSettings;
  readonly spawner: Spawner;
  readonly log: Log;
  /** The setup templates. */
  readonly setUp: TemplateSource;
  readonly snapshots: SnapshotLookup;
  readonly checkpoints: Checkpoints;
  readonly sandboxes: BuildSandboxes;
  /** The version of the envd of new sandboxes. */
  readonly envdVersion: string;
  /** Signs the URLs of uploads. */
  readonly secret: string;
  readonly storage: Omit<StoreOptions, "schema"> & { readonly quarantine: Quarantine };
  /** Returns the `image.rootfs` of every sandbox, running or paused, and of every snapshot. */
  readonly imagesInUse: () => Iterable<string>;
  readonly report: (
    event: Parameters<ReportBuild>[0] | "template.deleted" | "template.dropped",
    templateID: string,
    details: Readonly<Record<string, string | number>>,
  ) => void;
  /** Called when a template was deleted, so that warm pools end their sandboxes of it. */
  readonly onDeleted: (templateID: string) => Promise<void>;
  readonly keep: KeepBuild;
  /** Called when the template's builds or tags changed, or it was deleted. */
  readonly onChanged: (templateID: string) => void;
  readonly nowMs?: () => number;
};

export interface Templates {
  /** Returns true if a tenant may start sandboxes from the template: one of set-up, or one that is public. */
  isOpenTo(tenant: string, template: Template): boolean;
  readonly builder: Builder;
  /** Finds all templates by name. */
  readonly index: TemplateIndex;
  readonly images: Images;
  readonly queue: BuildQueue;
  readonly snapshots: SnapshotLookup;
  readonly envdVersion: string;
  /** Deletes by id or name, after ending running builds. @throws TEMPLATE_NOT_FOUND, TEMPLATE_IN_USE for a setup template. */
  deleteTemplate(asked: string): Promise<void>;
  /** Deletes a fetched build; its sandboxes continue. */
  dropCopy(buildID: string): Promise<void>;
  collect(): Promise<Collected>;
  /** Called once sandboxes can be started: continues builds, and starts periodic collections. */
  start(): void;
  /** Ends builds; `everything` also unmounts all images, after the last sandbox has ended. */
  close(everything: boolean): Promise<void>;
}

export async function openTemplates(options: TemplatesOptions): Promise<Templates> {
  const {
    home,
    settings,
    spawner,
    log,
    setUp,
    snapshots,
    checkpoints,
    sandboxes,
    envdVersion,
    secret,
    storage,
    imagesInUse,
    report,
    onDeleted,
    keep,
    onChanged,
  } = options;
  const { nowMs = Date.now } = options;
  const db = openDatabase(join(home, "templates.db"), storage);
  const { quarantine, durability = "process" } = storage;
  await sweepHalfFetched(home);
  const layers = await openLayers(join(home, "layers"), spawner, { quarantine, durability });
  const images = await openImages(home, layers, db, spawner, nowMs);
  const builds = openBuilds(db, nowMs, quarantine, onChanged);
  const copies = openCopies(db);
  const index = openTemplateIndex({ builds, copies, images, setUp, snapshots, db, quarantine, log, nowMs, envdVersion });
  const uploads = await openUploads(join(home, "files"), secret, { maxBytes: settings.upload_mb * MIB, db, nowMs, durability });
  const builder: Builder = {
    home,
    settings,
    spawner,
    log,
    nowMs,
    cache: openBuildCache(db, nowMs),
    builds,
    copies,
    buildLog: openBuildLog(db, nowMs),
    layers,
    images,
    uploads,
    checkpoints,
    sandboxes,
    keep,
    find: (asked) => index.find(asked),
    layersInHand: new Map(),
  };
  const queue = openBuildQueue(builder, report);
  let timer: NodeJS.Timeout | undefined;
  let collecting: Promise<Collected> | undefined;

  /** Runs one collection at a time; concurrent callers share it. */
  function collectOnce(): Promise<Collected> {
    // An unreadable record may use any layer, so images and layers are not collected then.
    collecting ??= collect(builder, queue.running + queue.waiting > 0 || quarantine.isBlind, imagesInUse()).finally(() => {
      collecting = undefined;
    });
    return collecting;
  }

  async function deleteTemplate(asked: string): Promise<void> {
    const unread = builds.unreadable(asked);
    if (unread?.kind === "build") {
      builds.removeBuild(unread.name);
      quarantine.drop("build", unread.name);
      return onDeleted(unread.templateID);
    }
    const template = unread ?? builds.template(splitReference(asked).name);
    if (template === undefined) {
      if (index.setUp(asked) !== undefined)
        fail("TEMPLATE_IN_USE", `template '${asked}' was made by set-up and cannot be deleted; \`./svc uninstall\` removes it`);
      if (await snapshots.remove(asked)) return;
      index.find(asked);
      return fail("INVALID_REQUEST", `'${asked}' is a build; delete its template, by name or id`);
    }
    const { templateID, name } = template;
    await queue.drop(templateID);
    const taken = builds.of(templateID).flatMap(({ result }) => result?.checkpointID ?? []);
    for (const each of [templateID, ...builds.remove(templateID)]) for (const kind of ["template", "build"] as const) quarantine.drop(kind, each);
    await onDeleted(templateID);
    for (const checkpointID of taken) await checkpoints.remove(checkpointID);
    report("template.deleted", templateID, { name });
  }

  return {
    builder,
    index,
    images,
    queue,
    snapshots,
    envdVersion,
    deleteTemplate,
    isOpenTo(tenant, { source, templateID, tenant: owner }) {
      if (source === "snapshot") return owner === tenant;
      return index.setUp(templateID) !== undefined || builds.template(templateID)?.public === true;
    },
    async dropCopy(buildID) {
      const copy = copies.get(buildID);
      if (copy === undefined) return;
      copies.remove(buildID);
      await onDeleted(copy.templateID);
      if (copy.result.checkpointID !== undefined) await checkpoints.remove(copy.result.checkpointID);
      report("template.dropped", copy.templateID, { buildID });
    },
    collect: collectOnce,
    start() {
      queue.recover();
      timer = setInterval(() => {
        collectOnce().then(
          (collected) => log.debug(collected, "templates collected"),
          (error: unknown) => log.error({ err: error }, "unused files of templates could not be removed"),
        );
      }, COLLECT_EVERY_MS);
      timer.unref();
    },
    async close(everything) {
      clearInterval(timer);
      await queue.close();
      await collecting?.catch(() => undefined);
      await images.close(everything);
      db.close();
    },
  };
}

/** Removes blobs and credential files of fetches that a kill interrupted. */
async function sweepHalfFetched(home: string): Promise<void> {
  await rm(join(home, "oci"), { recursive: true, force: true });
  const run = join(home, "run");
  await mkdir(run, { recursive: true, mode: 0o711 });
  for (const name of await readdir(run)) if (/^registry-[0-9a-f]{16}\.json$/.test(name)) await rm(join(run, name), { force: true });
}
