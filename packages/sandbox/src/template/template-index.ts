// The index of all templates of a node: setup templates, those built here, fetched ones, and snapshots.
import { Failure, fail } from "@svc/contract/failures.ts";
import type { ListedTemplate } from "@svc/contract/template.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Quarantine } from "../records/quarantine.ts";
import type { BuildResult } from "./build-record.ts";
import type { Builds } from "./builds.ts";
import type { Copies, Copy } from "./copies.ts";
import type { Database } from "./database.ts";
import type { Images } from "./images.ts";
import { DEFAULT_TAG, splitReference } from "./reference.ts";
import { listedBuilt, listedSetUp, type Spawns, uuidOf } from "./show.ts";
import type { Template, TemplateSource } from "./template.ts";

export type SnapshotLookup = {
  /** Finds a snapshot by id or name, as a template whose checkpointID is the snapshot's. */
  find(asked: string): Template | undefined;
  /** Returns the id of a snapshot whose record cannot be read, by id or name. */
  unreadable(asked: string): string | undefined;
  /** Deletes the snapshot; returns true if there was one, readable or not. */
  remove(asked: string): Promise<boolean>;
};

export type TemplateIndex = TemplateSource & {
  /** Returns the setup template of that id or name with all its names. */
  setUp(asked: string): { template: Template; names: readonly string[] } | undefined;
  listed(): ListedTemplate[];
  listedSetUp(): ListedTemplate[];
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

  /** Returns the results of this node's builds and of fetched ones. */
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
  /** Finds a setup template; those have one build and one tag. */
  const setUpNamed = (asked: string): Template | undefined => {
    const { name, tag } = splitReference(asked);
    const template = tried(name) ?? setUp.list().find(({ recipe }) => uuidOf(recipe) === asked);
    return tag === undefined || tag === DEFAULT_TAG || (template !== undefined && tag === uuidOf(template.recipe)) ? template : undefined;
  };
  /** Finds a fetched build by its id, alone or after its template's name or id. */
  const copyNamed = (asked: string): Copy | undefined => {
    const { name, tag } = splitReference(asked);
    const copy = copies.get(tag ?? asked);
    return copy === undefined || tag === undefined || name === copy.name || name === copy.templateID ? copy : undefined;
  };
  /** Returns the names of a setup template, including aliases. */
  const namesOf = (template: Template) => [...new Set([template.name, ...["base"].filter((alias) => tried(alias)?.folder === template.folder)])];

  const shownSetUp = () => setUp.list().map((template) => listedSetUp(template, namesOf(template), spawns(template.templateID), envdVersion));

  return {
    find(asked) {
      const found = builds.resolve(asked);
      if (found !== undefined) return built(found);
      const template = setUpNamed(asked) ?? snapshots.find(asked);
      if (template !== undefined) return template;
      const { name } = splitReference(asked);
      // A copy is found only by its build's id, since the node that built it resolves its names.
      const copy = copyNamed(asked);
      if (copy !== undefined) return templateOf(copy);
      const quarantined = quarantine.find("template", name) ?? quarantine.find("snapshot", snapshots.unreadable(asked) ?? "") ?? quarantine.find("build", name);
      if (quarantined !== undefined) fail("QUARANTINED", `${quarantined.kind} '${asked}' is quarantined: ${quarantined.reason}`);
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
        // The sandbox is already in use by its client; the next start writes the count of both.
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
      const template = setUpNamed(asked);
      return template === undefined ? undefined : { template, names: namesOf(template) };
    },
    listedSetUp: shownSetUp,
    listed: () => [
      ...shownSetUp(),
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
    const named = tag === undefined ? undefined : builds.build(tag);
    if (named?.templateID === template.templateID)
      return `build '${tag}' of template '${name}' is not ready (${named.status}); \`svc template logs ${name}\` shows the newest`;
    return `template '${name}' has no ready build with the tag or id '${tag ?? DEFAULT_TAG}'; its tags are ${tags.join(", ")}`;
  }
  return setUp.list().length === 0
    ? `template '${asked}' not found: this node has none; run ./svc setup`
    : `template '${asked}' not found; \`svc template list\` lists them`;
}
