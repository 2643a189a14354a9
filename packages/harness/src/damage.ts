// Damages rows of a stopped node's databases, and reads what `svc doctor` says of them.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Diagnosis } from "@svc/sandbox/doctor/report.ts";

const DOCTOR = fileURLToPath(new URL("../../sandbox/src/doctor/main.ts", import.meta.url));

/** Names and reasons, as `svc doctor` shows them. */
export async function diagnosed(home: string): Promise<string[]> {
  const { stdout } = await promisify(execFile)(process.execPath, [DOCTOR, "--home", home, "--output", "json"]);
  return (JSON.parse(stdout) as Diagnosis).checks.filter(({ says }) => says.startsWith("quarantined")).map(({ name, says }) => `${name}: ${says}`);
}

/** Cuts the text of these rows short; each is put back by what is returned for it. */
export function damage(home: string, rows: readonly (readonly [file: string, table: string, key: string, column: string, id: string])[]): (() => void)[] {
  return rows.map(([file, table, key, column, id]) => {
    const change = (text: string) => {
      const db = new DatabaseSync(join(home, file));
      db.prepare(`UPDATE ${table} SET ${column} = ? WHERE ${key} = ?`).run(text, id);
      db.close();
    };
    const db = new DatabaseSync(join(home, file));
    const text = db.prepare(`SELECT ${column} AS text FROM ${table} WHERE ${key} = ?`).get(id)?.["text"] as string;
    db.close();
    assert.ok(text.length > 20, id);
    change(text.slice(0, text.length / 2));
    return () => change(text);
  });
}
