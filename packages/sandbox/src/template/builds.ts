// Templates that were built here, their builds and tags: the rows, and what a name stands for.
import { randomUUID } from "node:crypto";
import { fail } from "@svc/contract/failures.ts";
import type { Build, BuiltTemplate } from "./build-record.ts";
import type { Database } from "./database.ts";
import { DEFAULT_TAG, newTemplateID, splitReference } from "./reference.ts";

export type ReadyBuild = Build & { readonly status: "ready"; readonly result: NonNullable<Build["result"]> };
export type Tag = { readonly tag: string; readonly buildID: string; readonly createdAtMs: number };
export type Asked = { readonly cpuCount: number | undefined; readonly memoryMB: number | undefined; readonly diskSizeMB: number | undefined };

export interface Builds {
  /** A new build, waiting, of the template that bears the name, which is made where there is none. */
  request(name: string, tags: readonly string[], asked: Asked): { template: BuiltTemplate; build: Build };
  template(idOrName: string): BuiltTemplate | undefined;
  templates(): BuiltTemplate[];
  build(buildID: string): Build | undefined;
  /** The newest first. */
  of(templateID: string): Build[];
  withStatus(...statuses: Build["status"][]): Build[];
  update(buildID: string, changes: Partial<Build>): Build;
  /** Ready, and its tags moved to it, in one step; a tag that a build which was started later bears stays there. */
  publish(buildID: string, result: ReadyBuild["result"]): void;
  setPublic(templateID: string, isPublic: boolean): void;
  /** NAME, NAME:TAG, ID, ID:TAG or a build's id, where that build is ready. */
  resolve(asked: string): { template: BuiltTemplate; build: ReadyBuild } | undefined;
  tags(templateID: string): Tag[];
  tag(templateID: string, tags: readonly string[], buildID: string): void;
  /** @throws TAG_NOT_FOUND; then none is taken away. */
  untag(templateID: string, tags: readonly string[]): void;
  remove(templateID: string): void;
  removeBuild(buildID: string): void;
}

export function openBuilds(db: Database, nowMs: () => number): Builds {
  const asBuild = (row: { record?: unknown } | undefined) => (row === undefined ? undefined : (JSON.parse(row.record as string) as Build));
  const asTemplate = (row: { record?: unknown } | undefined) => (row === undefined ? undefined : (JSON.parse(row.record as string) as BuiltTemplate));
  const putTemplate = (template: BuiltTemplate) =>
    db.run(
      "INSERT INTO templates VALUES (?, ?, ?) ON CONFLICT (template_id) DO UPDATE SET record = excluded.record",
      template.templateID,
      template.name,
      JSON.stringify(template),
    );
  const putBuild = (build: Build) =>
    db.run(
      "INSERT INTO builds VALUES (?, ?, ?, ?, ?) ON CONFLICT (build_id) DO UPDATE SET status = excluded.status, record = excluded.record",
      build.buildID,
      build.templateID,
      build.status,
      build.createdAtMs,
      JSON.stringify(build),
    );
  const template = (idOrName: string) => asTemplate(db.get("SELECT record FROM templates WHERE template_id = ? OR name = ?", idOrName, idOrName));
  const build = (buildID: string) => asBuild(db.get("SELECT record FROM builds WHERE build_id = ?", buildID));
  const setTag = (templateID: string, tag: string, buildID: string) =>
    db.run(
      "INSERT INTO tags VALUES (?, ?, ?, ?) ON CONFLICT (template_id, tag) DO UPDATE SET build_id = excluded.build_id, created_at = excluded.created_at",
      templateID,
      tag,
      buildID,
      nowMs(),
    );
  const ready = (found: Build | undefined) => (found?.status === "ready" && found.result !== undefined ? (found as ReadyBuild) : undefined);

  function update(buildID: string, changes: Partial<Build>): Build {
    const before = build(buildID) ?? fail("BUILD_NOT_FOUND", `build '${buildID}' was not found`);
    const next = { ...before, ...changes, updatedAtMs: nowMs() };
    putBuild(next);
    return next;
  }

  return {
    request(name, tags, asked) {
      return db.transaction(() => {
        const now = nowMs();
        const known = template(name) ?? { templateID: newTemplateID(), name, public: false, createdAtMs: now, updatedAtMs: now };
        putTemplate({ ...known, updatedAtMs: now });
        const made: Build = {
          buildID: randomUUID(),
          templateID: known.templateID,
          status: "waiting",
          tags,
          ...asked,
          spec: undefined,
          step: undefined,
          reason: undefined,
          result: undefined,
          createdAtMs: now,
          updatedAtMs: now,
          finishedAtMs: undefined,
        };
        putBuild(made);
        return { template: known, build: made };
      });
    },
    template,
    templates: () => db.all("SELECT record FROM templates ORDER BY name").flatMap((row) => asTemplate(row) ?? []),
    build,
    of: (templateID) =>
      db.all("SELECT record FROM builds WHERE template_id = ? ORDER BY created_at DESC, rowid DESC", templateID).flatMap((row) => asBuild(row) ?? []),
    withStatus: (...statuses) =>
      statuses.flatMap((status) =>
        db.all("SELECT record FROM builds WHERE status = ? ORDER BY created_at, rowid", status).flatMap((row) => asBuild(row) ?? []),
      ),
    update,
    publish(buildID, result) {
      db.transaction(() => {
        const { templateID, tags, startedAtMs = 0 } = update(buildID, { status: "ready", result, step: undefined, finishedAtMs: nowMs() });
        for (const tag of tags) {
          const holder = db.get("SELECT build_id FROM tags WHERE template_id = ? AND tag = ?", templateID, tag)?.["build_id"] as string | undefined;
          // Builds run side by side: an older one that ends later takes no name from a newer one.
          if (holder === undefined || (build(holder)?.startedAtMs ?? 0) <= startedAtMs) setTag(templateID, tag, buildID);
        }
        const known = template(templateID);
        if (known !== undefined) putTemplate({ ...known, updatedAtMs: nowMs() });
      });
    },
    setPublic(templateID, isPublic) {
      const known = template(templateID);
      if (known !== undefined) putTemplate({ ...known, public: isPublic, updatedAtMs: nowMs() });
    },
    resolve(asked) {
      const { name, tag } = splitReference(asked);
      const known = template(name);
      if (known !== undefined) {
        const row = db.get("SELECT build_id FROM tags WHERE template_id = ? AND tag = ?", known.templateID, tag ?? DEFAULT_TAG);
        const found = row === undefined ? undefined : ready(build(row["build_id"] as string));
        return found === undefined ? undefined : { template: known, build: found };
      }
      const found = ready(build(asked));
      const owner = found === undefined ? undefined : template(found.templateID);
      return found === undefined || owner === undefined ? undefined : { template: owner, build: found };
    },
    tags: (templateID) =>
      db
        .all("SELECT tag, build_id, created_at FROM tags WHERE template_id = ? ORDER BY created_at DESC, tag", templateID)
        .map((row) => ({ tag: row["tag"] as string, buildID: row["build_id"] as string, createdAtMs: row["created_at"] as number })),
    tag: (templateID, tags, buildID) => db.transaction(() => tags.forEach((tag) => void setTag(templateID, tag, buildID))),
    untag(templateID, tags) {
      db.transaction(() => {
        for (const tag of tags) {
          if (db.run("DELETE FROM tags WHERE template_id = ? AND tag = ?", templateID, tag) === 0) fail("TAG_NOT_FOUND", `the template has no tag '${tag}'`);
        }
      });
    },
    remove(templateID) {
      db.transaction(() => {
        db.run("DELETE FROM logs WHERE build_id IN (SELECT build_id FROM builds WHERE template_id = ?)", templateID);
        for (const table of ["builds", "tags", "spawns", "templates"]) db.run(`DELETE FROM ${table} WHERE template_id = ?`, templateID);
      });
    },
    removeBuild(buildID) {
      db.transaction(() => {
        for (const table of ["logs", "tags", "builds"]) db.run(`DELETE FROM ${table} WHERE build_id = ?`, buildID);
      });
    },
  };
}
