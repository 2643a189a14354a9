// Opens a file of observations; a damaged one is quarantined, because the node starts without old observations rather than not at all.
import { renameSync, rmSync } from "node:fs";
import { type Durability, openStore, type Store } from "@svc/kit/database.ts";
import type { Log } from "@svc/kit/log.ts";

/** SQLite's codes for a damaged file and for a file that is not a database. */
const DAMAGED: readonly unknown[] = [11, 26];

export type ObservedOptions = {
  readonly path: string;
  readonly tables: string;
  readonly durability: Durability | undefined;
  readonly log: Log;
  /** The log names this as lost with the file. */
  readonly what: string;
};

/** `isNew` is true if a damaged file was replaced by an empty one. @throws HOST_UNSUITABLE when another node has the file open. */
export function openOrQuarantine({ path, tables, durability, log, what }: ObservedOptions): { readonly store: Store; readonly isNew: boolean } {
  const open = () => openStore(path, { schema: { version: 0, tables }, durability });
  try {
    return { store: open(), isNew: false };
  } catch (error) {
    const { cause } = error as Error & { cause?: { errcode?: unknown } };
    if (!DAMAGED.includes(cause?.errcode)) throw error;
    log.error({ err: error, kept: `${path}.damaged` }, `the file of ${what} is damaged and was quarantined: earlier ${what} are lost`);
    renameSync(path, `${path}.damaged`);
    for (const end of ["-wal", "-shm"]) rmSync(`${path}${end}`, { force: true });
    return { store: open(), isNew: true };
  }
}
