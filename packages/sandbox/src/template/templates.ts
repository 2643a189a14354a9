// Opens all that a node has of templates: database, layers, images, uploads, builds; in this order, and closes it.
import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { StoreOptions } from "@svc/kit/database.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import type { Captures } from "../node/captures.ts";
import type { SetAside } from "../node/set-aside.ts";
import { openBuildLog } from "./build-log.ts";
import { type BuildQueue, openBuildQueue, type Tell } from "./build-queue.ts";
import { openBuilds } from "./builds.ts";
import type { Catalogue } from "./catalogue.ts";
import { type Collected, collect } from "./collect.ts";
import { openDatabase } from "./database.ts";
import { type Images, openImages } from "./images.ts";
import { openLayers } from "./layers.ts";
import { type Library, openLibrary, type SnapshotLookup } from "./library.ts";
import { splitReference } from "./reference.ts";
import type { TemplateSettings } from "./settings.ts";
import { openUploads } from "./uploads.ts";
import type { BuildSandboxes, Workshop } from "./workshop.ts";

const MIB = 1024 * 1024;
const COLLECT_EVERY_MS = 10 * 60_000;

export type TemplatesOptions = {
  readonly home: string;
  readonly settings: TemplateSettings;
  readonly spawner: Spawner;
  readonly log: Log;
  /** Set-up's templates. */
  readonly setUp: Catalogue;
  readonly snapshots: SnapshotLookup;
  readonly captures: Captures;
  readonly sandboxes: BuildSandboxes;
  /** Of the envd of new sandboxes. */
  readonly envdVersion: string;
  /** Signs the addresses of uploads. */
  readonly secret: string;
  readonly storage: Omit<StoreOptions, "version"> & { readonly aside: SetAside };
  /** `image.rootfs` of every sandbox, running or paused, and of every snapshot. */
  readonly imagesInUse: () => Iterable<string>;
  readonly tell: (event: Parameters<Tell>[0] | "template.deleted", templateID: string, details: Readonly<Record<string, string | number>>) => void;
  /** A template is no more: whoever keeps sandboxes of it ready ends them. */
  readonly onDeleted: (templateID: string) => Promise<void>;
  readonly nowMs?: () => number;
};

export interface Templates {
  readonly shop: Workshop;
  /** Takes the place of the catalogue. */
  readonly library: Library;
  readonly images: Images;
  readonly queue: BuildQueue;
  readonly snapshots: SnapshotLookup;
  readonly envdVersion: string;
  /** By id or name; builds under way end first. @throws TEMPLATE_NOT_FOUND, TEMPLATE_IN_USE for set-up's own. */
  deleteTemplate(asked: string): Promise<void>;
  collect(): Promise<Collected>;
  /** When sandboxes can be started: builds go on, and what nobody needs is collected from now on. */
  start(): void;
  /** Ends builds; `everything`: unmounts all images, after the last sandbox's end. */
  close(everything: boolean): Promise<void>;
}

export async function openTemplates(options: TemplatesOptions): Promise<Templates> {
  const { home, settings, spawner, log, setUp, snapshots, captures, sandboxes, envdVersion, secret, storage, imagesInUse, tell, onDeleted } = options;
  const { nowMs = Date.now } = options;
  const db = openDatabase(join(home, "templates.db"), storage);
  const { aside, durability = "process" } = storage;
  await sweepHalfFetched(home);
  const layers = await openLayers(join(home, "layers"), spawner, { aside, durability });
  const images = await openImages(home, layers, db, spawner, nowMs);
  const builds = openBuilds(db, nowMs, aside);
  const library = openLibrary({ builds, images, setUp, snapshots, db, aside, log, nowMs, envdVersion });
  const uploads = await openUploads(join(home, "files"), secret, { maxBytes: settings.upload_mb * MIB, db, nowMs, durability });
  const shop: Workshop = {
    home,
    settings,
    spawner,
    log,
    nowMs,
    db,
    builds,
    buildLog: openBuildLog(db, nowMs),
    layers,
    images,
    uploads,
    captures,
    sandboxes,
    find: (asked) => library.find(asked),
    layersInHand: new Map(),
  };
  const queue = openBuildQueue(shop, tell);
  let timer: NodeJS.Timeout | undefined;
  let collecting: Promise<Collected> | undefined;

  /** One at a time; whoever asks meanwhile gets the one under way. */
  function collectOnce(): Promise<Collected> {
    // What a record that cannot be read stands on is not known.
    collecting ??= collect(shop, queue.running + queue.waiting > 0 || aside.isBlind, imagesInUse()).finally(() => {
      collecting = undefined;
    });
    return collecting;
  }

  async function deleteTemplate(asked: string): Promise<void> {
    const template = builds.template(splitReference(asked).name);
    if (template === undefined) {
      if (library.setUp(asked) !== undefined) fail("TEMPLATE_IN_USE", `template '${asked}' is set-up's own and stays; \`./svc uninstall\` takes it away`);
      if (await snapshots.remove(asked)) return;
      library.find(asked);
      return fail("INVALID_REQUEST", `'${asked}' is a build; delete its template, by name or id`);
    }
    const { templateID, name } = template;
    await queue.drop(templateID);
    const taken = builds.of(templateID).flatMap(({ result }) => result?.captureID ?? []);
    builds.remove(templateID);
    await onDeleted(templateID);
    for (const captureID of taken) await captures.remove(captureID);
    tell("template.deleted", templateID, { name });
  }

  return {
    shop,
    library,
    images,
    queue,
    snapshots,
    envdVersion,
    deleteTemplate,
    collect: collectOnce,
    start() {
      queue.recover();
      timer = setInterval(() => {
        collectOnce().then(
          (collected) => log.debug(collected, "templates collected"),
          (error: unknown) => log.error({ err: error }, "what templates no longer need could not be collected"),
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

/** Blobs and credentials' files of fetches that a kill cut off. */
async function sweepHalfFetched(home: string): Promise<void> {
  await rm(join(home, "oci"), { recursive: true, force: true });
  const run = join(home, "run");
  await mkdir(run, { recursive: true, mode: 0o711 });
  for (const name of await readdir(run)) if (/^registry-[0-9a-f]{16}\.json$/.test(name)) await rm(join(run, name), { force: true });
}
