// The history of tags: every build that a tag has named, newest first, as E2B's clients list it.
import { randomUUID } from "node:crypto";
import type { Tag } from "./build-record.ts";
import type { Database } from "./database.ts";

export type Assignment = { readonly seq: number; readonly assignmentID: string; readonly buildID: string; readonly assignedAtMs: number };

/** The number of assignments kept per tag; the oldest go first. */
const MAX_KEPT = 200;

export interface TagHistory {
  /** Adds the assignment; called in the transaction that moves the tag. */
  add(templateID: string, tag: Tag): void;
  /** Returns at most `limit` assignments of a tag, newest first, below the position `before`. */
  of(templateID: string, tag: string, limit: number, before?: number): Assignment[];
}

/** Tags of an earlier version have no history: each gets the assignment that is in force. */
export function openTagHistory(db: Database): TagHistory {
  const add = (templateID: string, { tag, buildID, createdAtMs }: Tag) => {
    const values = [randomUUID(), templateID, tag, buildID, createdAtMs];
    db.run("INSERT INTO tag_assignments (assignment_id, template_id, tag, build_id, assigned_at) VALUES (?, ?, ?, ?, ?)", ...values);
    db.run(
      "DELETE FROM tag_assignments WHERE template_id = ?1 AND tag = ?2 AND seq <= (SELECT seq FROM tag_assignments WHERE template_id = ?1 AND tag = ?2 ORDER BY seq DESC LIMIT 1 OFFSET ?3)",
      templateID,
      tag,
      MAX_KEPT,
    );
  };
  const missing = db.all("SELECT * FROM tags WHERE NOT EXISTS (SELECT 1 FROM tag_assignments a WHERE a.template_id = tags.template_id AND a.tag = tags.tag)");
  if (missing.length > 0)
    db.transaction(() => {
      for (const row of missing)
        add(row["template_id"] as string, { tag: row["tag"] as string, buildID: row["build_id"] as string, createdAtMs: row["created_at"] as number });
    });

  return {
    add,
    of: (templateID, tag, limit, before = Number.MAX_SAFE_INTEGER) =>
      db
        .all("SELECT * FROM tag_assignments WHERE template_id = ? AND tag = ? AND seq < ? ORDER BY seq DESC LIMIT ?", templateID, tag, before, limit)
        .map((row) => ({
          seq: row["seq"] as number,
          assignmentID: row["assignment_id"] as string,
          buildID: row["build_id"] as string,
          assignedAtMs: row["assigned_at"] as number,
        })),
  };
}
