// Records of earlier versions, which kept them in an SQLite file: taken over once, after which the file is renamed.
import { existsSync, renameSync } from "node:fs";
import { isDiskFull } from "@svc/contract/failures.ts";
import { openStore } from "@svc/kit/database.ts";
import { type Change, ownCopy } from "./frames.ts";
import type { Damage } from "./segments.ts";

export async function importDatabase(file: string, take: (change: Change) => Promise<void>, damages: Damage[]): Promise<void> {
  if (!existsSync(file)) return;
  let name = `${file}.imported`;
  try {
    const database = openStore(file, { schema: { version: 0, tables: "" } });
    try {
      const rows = database.db.prepare("SELECT key, value, lease_ms FROM records").iterate() as Iterable<{
        key: string;
        value: Uint8Array;
        lease_ms: number | null;
      }>;
      for (const { key, value, lease_ms } of rows) await take({ key, value: ownCopy(Buffer.from(value)), leaseMs: lease_ms ?? undefined });
    } finally {
      database.close();
    }
  } catch (error) {
    // On a full disk it is for the next start.
    if (isDiskFull(error)) return;
    name = `${file}.damaged`;
    damages.push({ file, bytes: 0, setAside: name, reason: (error as Error).message });
  }
  for (const suffix of ["", "-wal", "-shm"]) if (existsSync(file + suffix)) renameSync(file + suffix, name + suffix);
}
