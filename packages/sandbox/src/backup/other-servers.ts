// The state of the other servers of a home: the store master's log and snapshots, the metadata server's journal, databases.
import { copyFileSync, existsSync, linkSync, mkdirSync, readdirSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fail } from "@svc/contract/failures.ts";

// Their logs only grow, and their snapshots replace each other by name: links of all files whose names did not change meanwhile hold every
// acknowledged change, and end as a killed process would leave them.

const ATTEMPTS = 100;
const AGAIN_MS = 50;
const HALF_WRITTEN = /\.(part|new|tmp)$|^reserve$/;

/** Folders of servers whose state is only there; the indexer gets its own again from the engines. */
export const serverFolders: readonly string[] = ["store", "store-service", "store-admin", "metadata"];

/** @throws HOST_UNSUITABLE for a folder that changes all the time. */
export async function linkServers(home: string, folder: string): Promise<void> {
  for (const name of serverFolders) if (existsSync(join(home, name))) await linkStable(join(home, name), join(folder, name));
}

async function linkStable(from: string, to: string): Promise<void> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    if (linked(from, to)) return;
    rmSync(to, { recursive: true, force: true });
    await sleep(AGAIN_MS);
  }
  fail("HOST_UNSUITABLE", `the files of ${from} were replaced during each of ${ATTEMPTS} attempts to link them; stop its server, or try again`);
}

/** Returns false if a file was removed, added or, for a database, written meanwhile. */
function linked(from: string, to: string): boolean {
  mkdirSync(to, { recursive: true, mode: 0o700 });
  const before = stateOf(from);
  try {
    for (const entry of readdirSync(from, { withFileTypes: true })) {
      const [source, target] = [join(from, entry.name), join(to, entry.name)];
      if (HALF_WRITTEN.test(entry.name)) continue;
      if (entry.isDirectory() && !linked(source, target)) return false;
      if (!entry.isFile()) continue;
      if (isOfDatabase(entry.name)) copyFileSync(source, target);
      else linkSync(source, target);
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return false;
    throw error;
  }
  return stateOf(from) === before;
}

/** SQLite writes into its file, so only an unchanged one can be copied. */
const isOfDatabase = (name: string) => /\.db(-wal)?$/.test(name);

function stateOf(folder: string): string {
  const names = readdirSync(folder)
    .filter((name) => !HALF_WRITTEN.test(name))
    .sort();
  return names
    .map((name) => {
      if (!isOfDatabase(name)) return name;
      const { size, mtimeNs } = statSync(join(folder, name), { bigint: true });
      return `${name} ${size} ${mtimeNs}`;
    })
    .join("\n");
}
