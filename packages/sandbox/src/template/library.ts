// All templates of a node under one roof: set-up's, those built here, and snapshots.
import { Failure, fail } from "@svc/contract/failures.ts";
import type { ListedTemplate } from "@svc/contract/template.ts";
import type { RuntimeName } from "../runtime/runtime.ts";
import type { BuiltTemplate } from "./build-record.ts";
import type { Builds, ReadyBuild } from "./builds.ts";
import type { Catalogue, Template } from "./catalogue.ts";
import type { Database } from "./database.ts";
import type { Images } from "./images.ts";
import { splitReference } from "./reference.ts";
import { listedBuilt, listedSetUp, type Spawns } from "./show.ts";

export type SnapshotLookup = {
  /** By id or name; a template whose captureID is the snapshot's. */
  find(asked: string): Template | undefined;
  /** Whether there was one. */
  remove(asked: string): Promise<boolean>;
};

export type Library = Catalogue & {
  /** Set-up's template of that id or name, and the names that stand for it. */
  setUp(asked: string): { template: Template; names: readonly string[] } | undefined;
  listed(): ListedTemplate[];
  /** Drivers that captures of templates need. */
  runtimes(): Set<RuntimeName>;
  spawns(templateID: string): Spawns;
};

export function openLibrary(parts: {
  builds: Builds;
  images: Images;
  setUp: Catalogue;
  snapshots: SnapshotLookup;
  db: Database;
  nowMs: () => number;
  envdVersion: string;
}): Library {
  const { builds, images, setUp, snapshots, db, nowMs, envdVersion } = parts;

  function built({ template, build }: { template: BuiltTemplate; build: ReadyBuild }): Template {
    const { result } = build;
    const { cpuCount, memoryMB, diskSizeMB, env, user, workdir, chain, captureID, startup } = result;
    return {
      name: template.name,
      templateID: template.templateID,
      cpuCount,
      memoryMB,
      diskSizeMB,
      user,
      workdir,
      env: env["PATH"] === undefined ? env : { ...env, SVC_TEMPLATE_PATH: env["PATH"] },
      createdAt: new Date(build.createdAtMs).toISOString(),
      recipe: build.buildID,
      source: "build",
      binds: [...(chain.base?.binds ?? [])],
      folder: build.buildID,
      image: images.of(chain),
      startup,
      ...(captureID === undefined ? {} : { captureID, envd: result.envd, envdVersion: result.envdVersion, runtime: result.runtime, limits: result.limits }),
    };
  }

  const readyBuilds = () => builds.withStatus("ready") as ReadyBuild[];
  const spawns = (templateID: string): Spawns => {
    const row = db.get("SELECT count, last_at FROM spawns WHERE template_id = ?", templateID);
    return { count: (row?.["count"] as number | undefined) ?? 0, lastAtMs: row?.["last_at"] as number | undefined };
  };
  const tried = (asked: string): Template | undefined => {
    try {
      return setUp.find(asked);
    } catch (error) {
      if (error instanceof Failure && error.name === "TEMPLATE_NOT_FOUND") return undefined;
      throw error;
    }
  };
  /** Names set-up's templates bear, aliases too. */
  const namesOf = (template: Template) => [...new Set([template.name, ...["base"].filter((alias) => tried(alias)?.folder === template.folder)])];

  return {
    find(asked) {
      const found = builds.resolve(asked);
      if (found !== undefined) return built(found);
      const { name, tag } = splitReference(asked);
      const own = tag === undefined || tag === "default" ? tried(name) : undefined;
      const template = own ?? snapshots.find(asked);
      if (template !== undefined) return template;
      return fail("TEMPLATE_NOT_FOUND", notFound(asked, builds, setUp));
    },
    list: () => [
      ...setUp.list(),
      ...builds.templates().flatMap(({ name }) => {
        const found = builds.resolve(name);
        return found === undefined ? [] : [built(found)];
      }),
    ],
    spawned(templateID) {
      db.run("INSERT INTO spawns VALUES (?, 1, ?) ON CONFLICT (template_id) DO UPDATE SET count = count + 1, last_at = excluded.last_at", templateID, nowMs());
    },
    captures: () => readyBuilds().flatMap(({ result }) => result.captureID ?? []),
    envds: () => readyBuilds().flatMap(({ result }) => result.envd ?? []),
    runtimes: () => new Set(readyBuilds().flatMap(({ result }) => result.runtime ?? [])),
    setUp(asked) {
      const template = tried(asked);
      return template === undefined ? undefined : { template, names: namesOf(template) };
    },
    listed: () => [
      ...setUp.list().map((template) => listedSetUp(template, namesOf(template), spawns(template.templateID), envdVersion)),
      ...builds.templates().map((template) => listedBuilt(template, builds.of(template.templateID), spawns(template.templateID), envdVersion)),
    ],
    spawns,
  };
}

/** Of the templates that there are, in the message about one that there is not. */
const MAX_NAMED = 3;

function notFound(asked: string, builds: Builds, setUp: Catalogue): string {
  const { name, tag } = splitReference(asked);
  const template = builds.template(name);
  if (template !== undefined) {
    const tags = builds.tags(template.templateID).map((each) => each.tag);
    if (tags.length === 0) return `template '${asked}' has no build that is ready; GET its build's status says why`;
    return `template '${name}' has no ready build with the tag '${tag ?? "default"}'; it has ${tags.join(", ")}`;
  }
  const known = [...new Set([...setUp.list().map((each) => each.name), ...builds.templates().map((each) => each.name)])];
  if (known.length === 0) return `template '${asked}' not found: this node has none; run ./svc setup`;
  const named = known.slice(0, MAX_NAMED).join(", ");
  const more = known.length - MAX_NAMED;
  return `template '${asked}' not found; this node has ${named}${more > 0 ? ` and ${more} more, which \`svc template list\` shows` : ""}`;
}
