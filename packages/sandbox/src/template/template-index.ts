// All templates of a node under one roof: set-up's, those built here, and snapshots.
import { Failure, fail } from "@svc/contract/failures.ts";
import type { ListedTemplate } from "@svc/contract/template.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Quarantine } from "../records/quarantine.ts";
import type { BuildResult } from "./build-record.ts";
import type { Builds } from "./builds.ts";
import type { Copies, Copy } from "./copies.ts";
import type { Database } from "./database.ts";
import type { Images } from "./images.ts";
import { splitReference } from "./reference.ts";
import { listedBuilt, listedSetUp, type Spawns } from "./show.ts";
import type { Template, TemplateSource } from "./template.ts";

export type SnapshotLookup = {
  /** By id or name; a template whose checkpointID is the snapshot's. */
  find(asked: string): Template | undefined;
  /** The id of one whose record cannot be read, by id or name. */
  unreadable(asked: string): string | undefined;
  /** Whether there was one, readable or not. */
  remove(asked: string): Promise<boolean>;
};

export type TemplateIndex = TemplateSource & {
  /** Set-up's template of that id or name, and the names that stand for it. */
  setUp(asked: string): { template: Template; names: readonly string[] } | undefined;
  listed(): ListedTemplate[];
  spawns(templateID: string): Spawns;
};

export function openTemplateIndex(parts: {
  builds: Builds;
  copies: Copies;
  images: Images;
  setUp: TemplateSource;
  snapshots: SnapshotLookup;
  db: Database;
  quarantine: Pick<Quarantine, "find">;
  log: Log;
  nowMs: () => number;
  envdVersion: string;
}): TemplateIndex {
  const { builds, copies, images, setUp, snapshots, db, quarantine, log, nowMs, envdVersion } = parts;

  function built({ template, build }: NonNullable<ReturnType<Builds["resolve"]>>): Template {
    return templateOf({ ...build, name: template.name });
  }
  function templateOf({ buildID, templateID, name, createdAtMs, result }: Copy): Template {
    const { cpuCount, memoryMB, diskSizeMB, env, user, workdir, strictFiles, chain, checkpointID, startup } = result;
    return {
      name,
      templateID,
      cpuCount,
      memoryMB,
      diskSizeMB,
      user,
      workdir,
      strictFiles,
      env: env["PATH"] === undefined ? env : { ...env, SVC_TEMPLATE_PATH: env["PATH"] },
      createdAt: new Date(createdAtMs).toISOString(),
      recipe: buildID,
      source: "build",
      binds: [...(chain.base?.binds ?? [])],
      folder: buildID,
      image: images.of(chain),
      startup,
      ...(checkpointID === undefined
        ? {}
        : { checkpointID, envd: result.envd, envdVersion: result.envdVersion, runtime: result.runtime, limits: result.limits }),
    };
  }

  /** Of this node's templates, and those that were fetched. */
  const results = (): { readonly templateID: string; readonly result: BuildResult }[] => [
    ...builds.withStatus("ready").flatMap(({ templateID, result }) => (result === undefined ? [] : [{ templateID, result }])),
    ...copies.all(),
  ];
  const counted = new Map<string, Spawns>();
  for (const row of db.all("SELECT template_id, count, last_at FROM spawns")) {
    counted.set(row["template_id"] as string, { count: row["count"] as number, lastAtMs: row["last_at"] as number });
  }
  const spawns = (templateID: string): Spawns => counted.get(templateID) ?? { count: 0, lastAtMs: undefined };
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
      // By its build alone: what a name means, the node that built it says.
      const copy = copies.get(asked);
      if (copy !== undefined) return templateOf(copy);
      const held = quarantine.find("template", name) ?? quarantine.find("snapshot", snapshots.unreadable(asked) ?? "") ?? quarantine.find("build", name);
      if (held !== undefined) fail("QUARANTINED", `${held.kind} '${asked}' is quarantined: ${held.reason}`);
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
      const next = { count: spawns(templateID).count + 1, lastAtMs: nowMs() };
      counted.set(templateID, next);
      try {
        const { count, lastAtMs } = next;
        db.run(
          "INSERT INTO spawns VALUES (?, ?, ?) ON CONFLICT (template_id) DO UPDATE SET count = excluded.count, last_at = excluded.last_at",
          templateID,
          count,
          lastAtMs,
        );
      } catch (error) {
        // The sandbox is its client's already; the next one writes the count of both.
        log.warn({ err: error, templateID }, "a template's count of sandboxes could not be written");
      }
    },
    bears: (name) => tried(name) !== undefined || builds.template(name) !== undefined,
    checkpointed: () =>
      results().flatMap(({ templateID, result: { checkpointID, runtime } }) =>
        checkpointID === undefined || runtime === undefined ? [] : [{ templateID, checkpointID, runtime }],
      ),
    envds: () => results().flatMap(({ result }) => result.envd ?? []),
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

function notFound(asked: string, builds: Builds, setUp: TemplateSource): string {
  const { name, tag } = splitReference(asked);
  const template = builds.template(name);
  if (template !== undefined) {
    const tags = builds.tags(template.templateID).map((each) => each.tag);
    if (tags.length === 0) {
      const [newest] = builds.of(template.templateID);
      const why = newest?.status === "error" ? `the last one failed: ${newest.reason?.message ?? "its log says why"}` : "none was started, or none is over yet";
      return `template '${asked}' has no build that is ready: ${why}; \`svc template logs ${name}\` shows the newest`;
    }
    return `template '${name}' has no ready build with the tag '${tag ?? "default"}'; it has ${tags.join(", ")}`;
  }
  return setUp.list().length === 0
    ? `template '${asked}' not found: this node has none; run ./svc setup`
    : `template '${asked}' not found; \`svc template list\` lists them`;
}
