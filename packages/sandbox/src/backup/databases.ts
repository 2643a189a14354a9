// The databases of a staged or restored home: closed into single files, counted, and moved to another path.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { fail } from "@svc/contract/failures.ts";

/** The counts in a manifest, by database and query. */
const counted: readonly (readonly [name: string, file: string, sql: string])[] = [
  ["sandboxes", "sandboxes.db", "SELECT count(*) AS n FROM sandboxes WHERE record LIKE '%\"claim\":{%'"],
  ["paused", "sandboxes.db", 'SELECT count(*) AS n FROM sandboxes WHERE record LIKE \'%"state":"paused"%\''],
  ["snapshots", "sandboxes.db", "SELECT count(*) AS n FROM snapshots"],
  ["templates", "templates.db", "SELECT count(*) AS n FROM templates"],
];

/** Moves each database's log into its file, and checks it. @throws BACKUP_DAMAGED for a database that is damaged already. */
export function settleDatabases(folder: string): Record<string, number> {
  for (const name of readdirSync(folder).filter((each) => each.endsWith(".db"))) {
    const db = new DatabaseSync(join(folder, name));
    try {
      db.exec("PRAGMA journal_mode = DELETE");
      const found = db.prepare("PRAGMA quick_check(1)").get()?.["quick_check"];
      if (found !== "ok") throw new Error(String(found));
    } catch (error) {
      fail("BACKUP_DAMAGED", `${name} of the home is damaged, so a backup of it would be: ${(error as Error).message}; \`svc doctor\` says what to do`, {
        cause: error,
      });
    } finally {
      db.close();
    }
  }
  const counts: Record<string, number> = {};
  for (const [name, file, sql] of counted) {
    if (!existsSync(join(folder, file))) continue;
    const db = new DatabaseSync(join(folder, file), { readOnly: true });
    try {
      counts[name] = Number(db.prepare(sql).get()?.["n"] ?? 0);
    } finally {
      db.close();
    }
  }
  return counts;
}

/** Rows name images and sandboxes' folders by their whole path: in another home they get that home's. */
export function movePaths(home: string, from: string): void {
  if (from === home || !existsSync(join(home, "sandboxes.db"))) return;
  const db = new DatabaseSync(join(home, "sandboxes.db"));
  const quoted = (path: string) => JSON.stringify(`${path}/`).slice(0, -1);
  try {
    db.exec("BEGIN");
    db.prepare("UPDATE sandboxes SET record = replace(record, ?, ?)").run(quoted(from), quoted(home));
    db.prepare("UPDATE snapshots SET snapshot = replace(snapshot, ?, ?)").run(quoted(from), quoted(home));
    db.exec("COMMIT");
  } finally {
    db.close();
  }
}
