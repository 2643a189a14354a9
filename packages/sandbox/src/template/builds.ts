// Templates built on this node with their builds and tags: the rows, and the resolution of names.
import { randomUUID } from "node:crypto";
import { fail } from "@svc/contract/failures.ts";
import type { Quarantine } from "../records/quarantine.ts";
import type { Build, BuiltTemplate, Tag } from "./build-record.ts";
import { readBuilds, type UnreadRow } from "./builds-read.ts";
import type { Database } from "./database.ts";
import { DEFAULT_TAG, newTemplateID, splitReference } from "./reference.ts";
import { openTagHistory, type TagHistory } from "./tag-history.ts";

export type ReadyBuild = Build & { readonly status: "ready"; readonly result: NonNullable<Build["result"]> };
export type Asked = { readonly cpuCount: number | undefined; readonly memoryMB: number | undefined; readonly diskSizeMB: number | undefined };

export interface Builds {
  /** Creates a waiting build of the template with this name, and the template, created by `creator`, if there is none. */
  request(name: string, tags: readonly string[], asked: Asked, creator?: string): { template: BuiltTemplate; build: Build };
  template(idOrName: string): BuiltTemplate | undefined;
  templates(): BuiltTemplate[];
  readonly templateCount: number;
  build(buildID: string): Build | undefined;
  /** Returns the builds of a template, newest first. */
  of(templateID: string): Build[];
  withStatus(...statuses: Build["status"][]): Build[];
  update(buildID: string, changes: Partial<Build>): Build;
  /** Makes the build ready and moves its tags to it in one transaction; a tag of a build that was started later stays there. */
  publish(buildID: string, result: ReadyBuild["result"]): void;
  /** Returns the tags that would move to the build if it were published now. */
  tagsToMove(buildID: string): readonly string[]; // I18
  setPublic(templateID: string, isPublic: boolean): void;
  /** Finds a template by name or id, or a build by id, whose record cannot be read. */
  unreadable(asked: string): UnreadRow | undefined;
  /** Resolves NAME or ID, alone or with :TAG or :BUILD_ID, or a build's id alone, to a ready build. */
  resolve(asked: string): { template: BuiltTemplate; build: ReadyBuild } | undefined;
  tags(templateID: string): Tag[];
  /** The builds that each tag has named. */
  readonly history: Pick<TagHistory, "of">;
  tag(templateID: string, tags: readonly string[], buildID: string): void;
  /** @throws TAG_NOT_FOUND; no tag is removed then. */
  untag(templateID: string, tags: readonly string[]): void;
  /** Removes the template with all its builds, including unreadable ones; returns the quarantine names of those. */
  remove(templateID: string): string[];
  removeBuild(buildID: string): void;
  /** Removes a build, and its template if it has no other build. */
  abandon(buildID: string): void;
}

/** All rows are also kept in memory, so SQLite is read only here. A row that cannot be read is quarantined. */
export function openBuilds(
  db: Database,
  nowMs: () => number,
  quarantine: Pick<Quarantine, "addUnreadable" | "find">,
  /** Called when the builds of a template that other nodes may start have changed. */
  onChanged: (templateID: string) => void = () => {},
): Builds {
  const { templates, idByName, builds, idsOf, tags, unread } = readBuilds(db, quarantine);

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
  const history = openTagHistory(db);
  const putTag = (templateID: string, { tag, buildID, createdAtMs }: Tag) => {
    history.add(templateID, { tag, buildID, createdAtMs });
    db.run(
      "INSERT INTO tags VALUES (?, ?, ?, ?) ON CONFLICT (template_id, tag) DO UPDATE SET build_id = excluded.build_id, created_at = excluded.created_at",
      templateID,
      tag,
      buildID,
      createdAtMs,
    );
  };
  const template = (idOrName: string) => templates.get(idOrName) ?? templates.get(idByName.get(idOrName) ?? "");
  const ready = (found: Build | undefined) => (found?.status === "ready" && found.result !== undefined ? (found as ReadyBuild) : undefined);

  function showTemplate(shown: BuiltTemplate): void {
    templates.set(shown.templateID, shown);
    idByName.set(shown.name, shown.templateID);
  }
  function showTags(templateID: string, shown: readonly Tag[]): void {
    const all = tags.get(templateID) ?? new Map<string, Tag>();
    tags.set(templateID, all);
    for (const each of shown) all.set(each.tag, each);
  }
  function changed(buildID: string, changes: Partial<Build>): Build {
    const before = builds.get(buildID) ?? fail("BUILD_NOT_FOUND", `build '${buildID}' was not found`);
    return { ...before, ...changes, updatedAtMs: nowMs() };
  }
  const newestFirst = (templateID: string) => [...(idsOf.get(templateID) ?? [])].reverse().flatMap((buildID) => builds.get(buildID) ?? []);

  /** Builds run concurrently, and an older one that ends later must not take a tag from a newer one. */
  function tagsToMove({ buildID, templateID, tags: asked }: Build): readonly string[] {
    const startedAtMs = (id: string | undefined) => builds.get(id ?? "")?.startedAtMs ?? 0;
    return asked.filter((tag) => startedAtMs(tags.get(templateID)?.get(tag)?.buildID) <= startedAtMs(buildID));
  }

  function remove(templateID: string): string[] {
    db.settle(() => {
      db.run("DELETE FROM logs WHERE build_id IN (SELECT build_id FROM builds WHERE template_id = ?)", templateID);
      for (const table of ["builds", "tags", "tag_assignments", "spawns", "templates"]) db.run(`DELETE FROM ${table} WHERE template_id = ?`, templateID);
    });
    for (const { buildID } of newestFirst(templateID)) builds.delete(buildID);
    idByName.delete(templates.get(templateID)?.name ?? "");
    templates.delete(templateID);
    tags.delete(templateID);
    idsOf.delete(templateID);
    const gone = [...unread.values()].filter((row) => row.templateID === templateID).map(({ name }) => name);
    for (const name of gone) unread.delete(name);
    onChanged(templateID);
    return gone;
  }
  function removeBuild(buildID: string): void {
    db.settle(() => {
      for (const table of ["logs", "tags", "tag_assignments", "builds"]) db.run(`DELETE FROM ${table} WHERE build_id = ?`, buildID);
    });
    const { templateID = "" } = builds.get(buildID) ?? unread.get(buildID) ?? {};
    unread.delete(buildID);
    const of = tags.get(templateID);
    for (const each of [...(of?.values() ?? [])]) if (each.buildID === buildID) of?.delete(each.tag);
    builds.delete(buildID);
    idsOf.get(templateID)?.delete(buildID);
    onChanged(templateID);
  }

  return {
    request(name, tagNames, asked, creator) {
      const quarantined = quarantine.find("template", name);
      if (quarantined !== undefined) fail("QUARANTINED", `template '${name}' is quarantined: ${quarantined.reason}`);
      const now = nowMs();
      const known = template(name) ?? { templateID: newTemplateID(), name, public: false, creator, createdAtMs: now, updatedAtMs: now };
      const made: Build = {
        buildID: randomUUID(),
        templateID: known.templateID,
        status: "waiting",
        tags: tagNames,
        ...asked,
        spec: undefined,
        step: undefined,
        reason: undefined,
        result: undefined,
        createdAtMs: now,
        updatedAtMs: now,
        finishedAtMs: undefined,
      };
      db.transaction(() => {
        putTemplate({ ...known, updatedAtMs: now });
        putBuild(made);
      });
      showTemplate({ ...known, updatedAtMs: now });
      builds.set(made.buildID, made);
      idsOf.set(made.templateID, (idsOf.get(made.templateID) ?? new Set()).add(made.buildID));
      return { template: known, build: made };
    },
    template,
    templates: () => [...templates.values()].sort((a, b) => (a.name < b.name ? -1 : 1)),
    get templateCount() {
      return templates.size;
    },
    build: (buildID) => builds.get(buildID),
    of: newestFirst,
    withStatus: (...statuses) => statuses.flatMap((status) => [...builds.values()].filter((each) => each.status === status)),
    update(buildID, changes) {
      const next = changed(buildID, changes);
      // The end of a build, and its return to waiting, must be recorded on a full disk too.
      if (changes.status === "error" || changes.status === "waiting") db.settle(() => putBuild(next));
      else putBuild(next);
      builds.set(buildID, next);
      return next;
    },
    publish(buildID, result) {
      const next = changed(buildID, { status: "ready", result, step: undefined, finishedAtMs: nowMs() });
      const moved = tagsToMove(next).map((tag) => ({ tag, buildID, createdAtMs: nowMs() }));
      const known = template(next.templateID);
      db.transaction(() => {
        putBuild(next);
        for (const each of moved) putTag(next.templateID, each);
        if (known !== undefined) putTemplate({ ...known, updatedAtMs: nowMs() });
      });
      builds.set(buildID, next);
      showTags(next.templateID, moved);
      if (known !== undefined) showTemplate({ ...known, updatedAtMs: nowMs() });
      onChanged(next.templateID);
    },
    tagsToMove: (buildID) => tagsToMove(changed(buildID, {})),
    setPublic(templateID, isPublic) {
      const known = template(templateID);
      if (known === undefined) return;
      const next = { ...known, public: isPublic, updatedAtMs: nowMs() };
      putTemplate(next);
      showTemplate(next);
    },
    unreadable: (asked) => unread.get(asked) ?? [...unread.values()].find(({ kind, templateID }) => kind === "template" && templateID === asked),
    resolve(asked) {
      const { name, tag } = splitReference(asked);
      const known = template(name);
      if (known !== undefined) {
        const named = tags.get(known.templateID)?.get(tag ?? DEFAULT_TAG);
        const quarantined = named === undefined ? undefined : quarantine.find("build", named.buildID);
        if (quarantined !== undefined) fail("QUARANTINED", `build '${quarantined.name}' of template '${asked}' is quarantined: ${quarantined.reason}`);
        const byID = named === undefined && tag !== undefined ? builds.get(tag) : undefined;
        const found = ready(byID?.templateID === known.templateID ? byID : builds.get(named?.buildID ?? ""));
        return found === undefined ? undefined : { template: known, build: found };
      }
      const found = ready(builds.get(asked));
      const owner = found === undefined ? undefined : template(found.templateID);
      return found === undefined || owner === undefined ? undefined : { template: owner, build: found };
    },
    tags: (templateID) => [...(tags.get(templateID)?.values() ?? [])].sort((a, b) => b.createdAtMs - a.createdAtMs || (a.tag < b.tag ? -1 : 1)),
    history,
    tag(templateID, tagNames, buildID) {
      const moved = tagNames.map((tag) => ({ tag, buildID, createdAtMs: nowMs() }));
      db.transaction(() => {
        for (const each of moved) putTag(templateID, each);
      });
      showTags(templateID, moved);
      onChanged(templateID);
    },
    untag(templateID, tagNames) {
      const of = tags.get(templateID);
      for (const tag of tagNames) if (of?.has(tag) !== true) fail("TAG_NOT_FOUND", `the template has no tag '${tag}'`);
      db.settle(() => {
        for (const tag of tagNames) db.run("DELETE FROM tags WHERE template_id = ? AND tag = ?", templateID, tag);
      });
      for (const tag of tagNames) of?.delete(tag);
      onChanged(templateID);
    },
    remove,
    removeBuild,
    abandon(buildID) {
      const { templateID = "" } = builds.get(buildID) ?? {};
      removeBuild(buildID);
      if (newestFirst(templateID).length === 0) remove(templateID);
    },
  };
}
