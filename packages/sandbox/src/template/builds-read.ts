// Reads templates, builds and tags at the start; a row that cannot be read is quarantined by name.
import { z } from "zod";
import type { Quarantine } from "../records/quarantine.ts";
import type { Build, BuiltTemplate, Tag } from "./build-record.ts";
import type { Database } from "./database.ts";

const readableTemplate = z.looseObject({ templateID: z.string(), name: z.string(), createdAtMs: z.number(), updatedAtMs: z.number() });
const chain = z.looseObject({ base: z.looseObject({ rootfs: z.string(), binds: z.array(z.string()) }).optional(), layers: z.array(z.string()) });
const readableBuild = z.looseObject({
  buildID: z.string(),
  templateID: z.string(),
  status: z.enum(["waiting", "building", "ready", "error"]),
  tags: z.array(z.string()),
  createdAtMs: z.number(),
  updatedAtMs: z.number(),
  result: z.looseObject({ chain, env: z.record(z.string(), z.string()) }).optional(),
});

/** `name` is the name of the quarantine entry: a template's name or a build's id. */
export type UnreadRow = { readonly kind: "template" | "build"; readonly name: string; readonly templateID: string };

export type BuildRows = {
  readonly templates: Map<string, BuiltTemplate>;
  readonly idByName: Map<string, string>;
  /** Builds in order of creation. */
  readonly builds: Map<string, Build>;
  /** Build ids by template, in the same order. */
  readonly idsOf: Map<string, Set<string>>;
  /** Tags by template, then by name. */
  readonly tags: Map<string, Map<string, Tag>>;
  readonly unread: Map<string, UnreadRow>;
};

export function readBuilds(db: Database, quarantine: Pick<Quarantine, "addUnreadable">): BuildRows {
  const templates = new Map<string, BuiltTemplate>();
  const idByName = new Map<string, string>();
  const builds = new Map<string, Build>();
  const idsOf = new Map<string, Set<string>>();
  const tags = new Map<string, Map<string, Tag>>();
  const unread = new Map<string, UnreadRow>();
  const parsed = (row: UnreadRow, schema: z.ZodType, text: string): unknown => {
    try {
      return schema.parse(JSON.parse(text));
    } catch {
      unread.set(row.name, row);
      return void quarantine.addUnreadable({ kind: row.kind, name: row.name, reason: "its record cannot be read" });
    }
  };
  for (const row of db.all("SELECT template_id, name, record FROM templates")) {
    const at: UnreadRow = { kind: "template", name: row["name"] as string, templateID: row["template_id"] as string };
    const found = parsed(at, readableTemplate, row["record"] as string) as BuiltTemplate | undefined;
    if (found === undefined) continue;
    templates.set(found.templateID, found);
    idByName.set(found.name, found.templateID);
  }
  for (const row of db.all("SELECT build_id, template_id, record FROM builds ORDER BY created_at, rowid")) {
    const at: UnreadRow = { kind: "build", name: row["build_id"] as string, templateID: row["template_id"] as string };
    const found = parsed(at, readableBuild, row["record"] as string) as Build | undefined;
    if (found === undefined) continue;
    builds.set(found.buildID, found);
    idsOf.set(found.templateID, (idsOf.get(found.templateID) ?? new Set()).add(found.buildID));
  }
  for (const row of db.all("SELECT template_id, tag, build_id, created_at FROM tags")) {
    const templateID = row["template_id"] as string;
    const of = tags.get(templateID) ?? new Map<string, Tag>();
    tags.set(templateID, of);
    of.set(row["tag"] as string, { tag: row["tag"] as string, buildID: row["build_id"] as string, createdAtMs: row["created_at"] as number });
  }
  return { templates, idByName, builds, idsOf, tags, unread };
}
