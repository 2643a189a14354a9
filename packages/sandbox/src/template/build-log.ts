// The logs of builds: numbered entries per build, bounded, and written before any reader gets them.
import type { BuildLogEntry } from "@svc/contract/template-build.ts";
import type { Database } from "./database.ts";

export type Level = BuildLogEntry["level"];

/** The bound per build; further entries are dropped, and the last entry says so. */
const MAX_ENTRIES = 50_000;
const MAX_MESSAGE_CHARS = 4_096;
const levels: readonly Level[] = ["debug", "info", "warn", "error"];

export type Line = { readonly level: Level; readonly message: string };

export interface BuildLog {
  write(buildID: string, step: string | undefined, lines: readonly Line[]): void;
  /** Returns entries of this level and above, starting at the `offset`-th of them. */
  page(buildID: string, offset: number, limit: number, level?: Level): BuildLogEntry[];
  since(buildID: string, cursorMs: number | undefined, limit: number, direction: "forward" | "backward", level?: Level): BuildLogEntry[];
  /** Returns the last entries of a step. */
  tail(buildID: string, step: string, limit: number): BuildLogEntry[];
}

export function openBuildLog(db: Database, nowMs: () => number): BuildLog {
  const columns = "SELECT at, level, step, message FROM logs";
  const entries = (rows: Record<string, unknown>[]): BuildLogEntry[] =>
    rows.map((row) => ({
      timestamp: new Date(row["at"] as number).toISOString(),
      message: row["message"] as string,
      level: row["level"] as Level,
      ...(row["step"] === null ? {} : { step: row["step"] as string }),
    }));
  const from = (level: Level = "debug") => JSON.stringify(levels.slice(levels.indexOf(level)));
  const among = "level IN (SELECT value FROM json_each(?))";

  return {
    write(buildID, step, lines) {
      if (lines.length === 0) return;
      db.transaction(() => {
        const count = (db.get("SELECT coalesce(max(seq), -1) + 1 AS next FROM logs WHERE build_id = ?", buildID)?.["next"] as number | undefined) ?? 0;
        const room = MAX_ENTRIES - count;
        if (room <= 0) return;
        const kept =
          lines.length < room
            ? lines
            : [...lines.slice(0, room - 1), { level: "warn" as const, message: `the log is full (${MAX_ENTRIES} entries); what follows is left out` }];
        kept.forEach(({ level, message }, at) => {
          const text = message.length > MAX_MESSAGE_CHARS ? `${message.slice(0, MAX_MESSAGE_CHARS)}…` : message;
          db.run("INSERT INTO logs VALUES (?, ?, ?, ?, ?, ?)", buildID, count + at, nowMs(), level, step ?? null, text);
        });
      });
    },
    page: (buildID, offset, limit, level) =>
      entries(db.all(`${columns} WHERE build_id = ? AND ${among} ORDER BY seq LIMIT ? OFFSET ?`, buildID, from(level), limit, offset)),
    since(buildID, cursorMs, limit, direction, level) {
      const forward = direction === "forward";
      const bound = cursorMs ?? (forward ? 0 : Number.MAX_SAFE_INTEGER);
      const sql = `${columns} WHERE build_id = ? AND ${among} AND at ${forward ? ">=" : "<="} ? ORDER BY seq ${forward ? "ASC" : "DESC"} LIMIT ?`;
      return entries(db.all(sql, buildID, from(level), bound, limit));
    },
    tail: (buildID, step, limit) => entries(db.all(`${columns} WHERE build_id = ? AND step = ? ORDER BY seq DESC LIMIT ?`, buildID, step, limit)).reverse(),
  };
}
