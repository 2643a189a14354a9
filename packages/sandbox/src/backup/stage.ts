// A home's state as of one moment, in a folder of that home: databases and small files copied in one step, large files by hard links.
import { randomBytes } from "node:crypto";
import { constants, copyFileSync, cpSync, existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { link, mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { diskFull, isDiskFull } from "@svc/contract/failures.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { partOf, STAGING } from "./home-parts.ts";
import { linkServers } from "./other-servers.ts";

// $SVC_HOME/backup/<backupID>/home/             what `svc backup create` archives; its name is not used while it is read
//   1  removals of checkpoints and layers wait  what the records name is still there in step 3
//   2  databases and small files are copied     in one tick of the event loop: no change happens in between
//   3  checkpoints, layers, uploads are linked  a link keeps the content, whatever the node removes later
//   4  removals go on

/** A pause of removals; the caller ends it. */
export type Hold = () => Promise<() => Promise<void>>;
export type StageParts = { readonly home: string; readonly auditLog: string; readonly spawner: Spawner; readonly hold: Hold };

const LINK_TIMEOUT_MS = 30 * 60_000;
const LINKS_AT_ONCE = 64;
const FOLDERS_AT_ONCE = 200;
/** Names that a killed or running writer leaves in the linked folders. */
const HALF_WRITTEN = /^(discarded-|in-|pack-)|\.(part|tmp|new)$/;

/** Removes what a killed `svc backup create` left. */
export function clearStaging(home: string): void {
  rmSync(join(home, STAGING), { recursive: true, force: true });
}

/** Returns the folder. Nothing is left if this throws. @throws DISK_FULL. */
export async function stageHome({ home, auditLog, spawner, hold }: StageParts): Promise<{ readonly backupID: string; readonly folder: string }> {
  const backupID = `b${randomBytes(8).toString("hex")}`;
  const folder = join(home, STAGING, backupID, "home");
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const release = await hold();
    try {
      const { linked, later } = copyAtOnce(home, folder, auditLog);
      for (const name of linked) await linkFolder(spawner, join(home, name), join(folder, name), name === "snapshots");
      for (const name of later) await spawner.check(["cp", "-a", "--reflink=auto", "--", join(home, name), folder], { timeoutMs: LINK_TIMEOUT_MS });
    } finally {
      await release();
    }
    await linkServers(home, folder);
    return { backupID, folder };
  } catch (error) {
    rmSync(join(home, STAGING, backupID), { recursive: true, force: true });
    throw isDiskFull(error) ? diskFull(error) : error;
  }
}

/** Copies synchronously, so that no request of this process changes anything meanwhile; returns the names of what is left to link and to copy. */
function copyAtOnce(home: string, folder: string, auditLog: string): { linked: string[]; later: string[] } {
  const linked: string[] = [];
  const later: string[] = [];
  for (const entry of readdirSync(home, { withFileTypes: true })) {
    const [from, to] = [join(home, entry.name), join(folder, entry.name)];
    const part = partOf(entry.name, entry.isDirectory(), auditLog);
    if (part === "left out" || entry.isSocket()) continue;
    if (part === "linked") linked.push(entry.name);
    else if (part === "copied later") later.push(entry.name);
    else if (part === "database") {
      // A database and its log at one moment are what a killed process would leave: SQLite reads all committed changes from them.
      for (const end of ["", "-wal"]) if (existsSync(`${from}${end}`)) copyFileSync(`${from}${end}`, `${to}${end}`, constants.COPYFILE_FICLONE);
    } else cpSync(from, to, { recursive: true, preserveTimestamps: true, verbatimSymlinks: true });
  }
  // The records of volumes; their files are archives of their own.
  const records = join(home, "volumes/names");
  if (existsSync(records)) cpSync(records, join(folder, "volumes/names"), { recursive: true, preserveTimestamps: true });
  return { linked, later };
}

/** Links a folder's files, or copies them where the folder is on another file system. Folders that no manifest completes are left out. */
async function linkFolder(spawner: Spawner, from: string, to: string, isOfCheckpoints: boolean): Promise<void> {
  await mkdir(to, { mode: 0o700 });
  const entries = (await readdir(from, { withFileTypes: true })).filter(({ name }) => !HALF_WRITTEN.test(name));
  const folders = entries.filter((entry) => entry.isDirectory() && (!isOfCheckpoints || existsSync(join(from, entry.name, "manifest.json"))));
  for (let at = 0; at < folders.length; at += FOLDERS_AT_ONCE) {
    const names = folders.slice(at, at + FOLDERS_AT_ONCE).map(({ name }) => name);
    const copy = (how: readonly string[]) => spawner.run(["cp", ...how, "--", ...names, to], { cwd: from, timeoutMs: LINK_TIMEOUT_MS });
    const { code, stderr } = await copy(["-al"]);
    if (code === 0) continue;
    if (!/cross-device|too many links/i.test(stderr)) throw new Error(`${from} could not be linked: ${stderr.trim().slice(-300)}`);
    await spawner.check(["cp", "-a", "--remove-destination", "--reflink=auto", "--sparse=auto", "--", ...names, to], { cwd: from, timeoutMs: LINK_TIMEOUT_MS });
  }
  const files = entries.filter((entry) => entry.isFile());
  for (let at = 0; at < files.length; at += LINKS_AT_ONCE) {
    await Promise.all(
      files.slice(at, at + LINKS_AT_ONCE).map(async ({ name }) => {
        await link(join(from, name), join(to, name)).catch(async (error: NodeJS.ErrnoException) => {
          // An upload that nothing needs may be collected meanwhile.
          if (error.code === "ENOENT") return;
          if (error.code !== "EXDEV" && error.code !== "EMLINK") throw error;
          await spawner.check(["cp", "-a", "--", join(from, name), to], { timeoutMs: LINK_TIMEOUT_MS });
        });
      }),
    );
  }
}
