// Layers on disk: the changes of one build step, with checksums that are verified before the first mount.
import { randomBytes } from "node:crypto";
import { chmod, lstat, mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import type { Durability } from "@svc/kit/database.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { syncAll } from "@svc/kit/sync.ts";
import { z } from "zod";
import type { Quarantine } from "../records/quarantine.ts";

// $SVC_HOME/layers/<layerID>.part/   incomplete; the next start removes it
//                  <layerID>/diff/       in overlayfs format: a device 0,0 for a deleted file, trusted.overlay.opaque
//                            entries     kind, mode, owner, size, link and path of each entry, sorted
//                            sums        XXH128 and path of each regular file, sorted
//                            layer.json

const description = z.object({
  version: z.literal(1),
  createdAt: z.string(),
  /** The step or source that made the layer, for people. */
  note: z.string(),
  sizeBytes: z.number().int(),
  files: z.number().int(),
  /** The XXH128 checksums of the files `entries` and `sums`. */
  entries: z.string(),
  sums: z.string(),
});
export type LayerInfo = z.output<typeof description> & { readonly layerID: string };

export interface Layers {
  readonly folder: string;
  /** Calls `write` to fill a folder. Returns undefined if that changes nothing over `below`. Nothing is left if it throws. */
  add(note: string, write: (diff: string) => Promise<void>, below?: string): Promise<LayerInfo | undefined>;
  info(layerID: string): LayerInfo | undefined;
  all(): LayerInfo[];
  /** Returns the ids of quarantined layers. */
  unread(): string[];
  /** Verifies the layer once in the life of this process. @throws SNAPSHOT_DAMAGED that names layer and file. */
  verify(layerID: string): Promise<void>;
  remove(layerID: string): Promise<void>;
  /** Keeps every layer on disk until the returned function is called: `remove` leaves them meanwhile to the next collection. */
  holdAll(): Promise<() => void>;
  /** Waits until new layers are written to the disk. */
  sync(): Promise<void>;
}

/** More folders than this do not come from a sandbox's start, so the step made them on purpose. */
const MAX_TOUCHED_FOLDERS = 32;
/** The gVisor driver creates this folder so that runsc does not mount its own file system on an empty /tmp. */
const DRIVERS_OWN = "tmp/.X11-unix";
const SCAN_TIMEOUT_MS = 15 * 60_000;
const idPattern = /^[0-9a-f]{16}$/;

/** Runs in diff/. Folders' sizes and times are left out, since they differ between file systems. */
const listEntries = `find . ! -type d -printf '%y %m %U:%G %s %l %p\\0' -o -printf '%y %m %U:%G - %p\\0' | LC_ALL=C sort -z | tr '\\0\\n' '\\n '`;
const listSums = `find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r xxh128sum --`;
const describe = `set -e -o pipefail
${listEntries} >../entries
${listSums} >../sums
find . -type f -printf '%s\\n' | awk '{ size += $1 } END { printf "%d %d\\n", NR, size }'
find . ! -type d -print -quit | wc -l
cd ..; xxh128sum -- entries sums`;
/** Prints the first line that differs, which may be due to damage of the list itself. */
const compare = `set -o pipefail
${listEntries} | cmp -s - ../entries || { echo entries; ${listEntries} | diff -a -- ../entries - | grep -a '^[<>]' | head -n 1; exit 0; }
${listSums} | cmp -s - ../sums || { echo sums; ${listSums} | diff -a -- ../sums - | grep -a '^[<>]' | head -n 1; }`;

export type LayersOptions = { readonly quarantine: Pick<Quarantine, "add" | "drop">; readonly durability: Durability };

export async function openLayers(folder: string, spawner: Spawner, { quarantine, durability }: LayersOptions): Promise<Layers> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  // Users of the host must not reach a set-user-id program of an untrusted image.
  await chmod(folder, 0o700);
  const known = new Map<string, LayerInfo>();
  const unread = new Set<string>();
  for (const name of await readdir(folder)) {
    const path = join(folder, name);
    if (name.endsWith(".part")) await rm(path, { recursive: true, force: true, maxRetries: 5 });
    else if (idPattern.test(name))
      await readInfo(path, name).then(
        (info) => void known.set(name, info),
        (error: unknown) => {
          unread.add(name);
          quarantine.add({ kind: "layer", name, reason: `its layer.json cannot be read: ${asFailure(error).message}` });
        },
      );
  }
  const verified = new Map<string, Promise<void>>();
  let holdsOfAll = 0;
  const removing = new Set<Promise<void>>();
  const inDiff = (layerID: string) => join(folder, layerID, "diff");

  async function readInfo(path: string, layerID: string): Promise<LayerInfo> {
    return { ...description.parse(JSON.parse(await readFile(join(path, "layer.json"), "utf8"))), layerID };
  }

  async function check(layerID: string): Promise<void> {
    const damaged = (how: string, cause?: unknown) =>
      fail("SNAPSHOT_DAMAGED", `layer ${layerID} ${how}; build its template again without the cache (--no-cache)`, { cause });
    const info = await readInfo(join(folder, layerID), layerID).catch((cause: unknown) =>
      damaged(`is not on disk or has no readable layer.json (${asFailure(cause).message})`, cause),
    );
    const lists = await spawner
      .check(["xxh128sum", "--", "entries", "sums"], { cwd: join(folder, layerID) })
      .catch((cause: unknown) => damaged("has lost its lists", cause));
    const [entries, sums] = lists.split("\n").map((line) => line.slice(0, 32));
    if (entries !== info.entries || sums !== info.sums) damaged("has lists that are not what was written");
    const found = await spawner
      .check(["bash", "-c", compare], { cwd: inDiff(layerID), timeoutMs: SCAN_TIMEOUT_MS })
      .catch((cause: unknown) => damaged(`cannot be read: ${asFailure(cause).message}`, cause));
    const [, line] = found.split("\n");
    if (found.trim() !== "") damaged(`is not what was written: ${pathIn(line ?? "")}`);
  }

  /** A sandbox's start touches a few folders, so a layer with only such existing folders means that nothing changed. */
  async function sameFolders(diff: string, below: string | undefined): Promise<boolean> {
    const folders = (await spawner.check(["find", ".", "-mindepth", "1", "-printf", "%m %U %G %P\\0"], { cwd: diff, repeatable: true }))
      .split("\0")
      .filter((line) => line !== "");
    if (below === undefined || folders.length > MAX_TOUCHED_FOLDERS) return folders.length === 0;
    for (const line of folders) {
      const [, mode = "", uid, gid, path = ""] = /^(\d+) (\d+) (\d+) ([\s\S]*)$/.exec(line) ?? [];
      if (path === DRIVERS_OWN) continue;
      const info = await lstat(join(below, path)).catch(() => undefined);
      if (info?.isDirectory() !== true || (info.mode & 0o7777) !== Number.parseInt(mode, 8) || info.uid !== Number(uid) || info.gid !== Number(gid))
        return false;
    }
    // A replaced folder hides the content below, and only its opaque attribute shows that.
    const paths = folders.map((line) => `./${line.split(" ").slice(3).join(" ")}`);
    const archive = await spawner.check(["tar", "--xattrs", "--xattrs-include=trusted.overlay.opaque", "--no-recursion", "-cf", "-", "--", ...paths], {
      cwd: diff,
    });
    return !archive.includes("trusted.overlay.opaque");
  }

  async function removeNow(layerID: string): Promise<void> {
    known.delete(layerID);
    verified.delete(layerID);
    // Renamed before the delete, so that a kill in between leaves no incomplete layer that looks complete.
    const part = join(folder, `${layerID}.part`);
    await rename(join(folder, layerID), part).catch(() => undefined);
    await rm(part, { recursive: true, force: true });
    if (unread.delete(layerID)) quarantine.drop("layer", layerID);
  }

  /** Syncs the whole file system, which is cheaper than syncing each of a layer's many files. */
  const sync = async () => void (await spawner.check(["sync", "-f", "--", folder], { timeoutMs: SCAN_TIMEOUT_MS, repeatable: true }));

  return {
    folder,
    async add(note, write, below) {
      const layerID = randomBytes(8).toString("hex");
      const part = join(folder, `${layerID}.part`);
      try {
        await mkdir(join(part, "diff"), { recursive: true, mode: 0o755 });
        await chmod(part, 0o711);
        await chmod(join(part, "diff"), 0o755);
        await write(join(part, "diff"));
        const output = await spawner.check(["bash", "-c", describe], { cwd: join(part, "diff"), timeoutMs: SCAN_TIMEOUT_MS, repeatable: true });
        const [counts = "", some = "", entries = "", sums = ""] = output.split("\n");
        if (some.trim() === "0" && (await sameFolders(join(part, "diff"), below))) {
          await rm(part, { recursive: true, force: true });
          return undefined;
        }
        const [files = "0", size = "0"] = counts.split(" ");
        const info = {
          version: 1 as const,
          createdAt: new Date().toISOString(),
          note,
          sizeBytes: Number(size),
          files: Number(files),
          entries: entries.slice(0, 32),
          sums: sums.slice(0, 32),
        };
        await writeFile(join(part, "layer.json"), `${JSON.stringify(info)}\n`);
        if (durability === "disk") await sync();
        await rename(part, join(folder, layerID));
        if (durability === "disk") await syncAll([folder]);
        known.set(layerID, { ...info, layerID });
        // The checksums have just read the files back, so the layer counts as verified.
        verified.set(layerID, Promise.resolve());
        return { ...info, layerID };
      } catch (error) {
        await rm(part, { recursive: true, force: true });
        throw layerFailure(error);
      }
    },
    info: (layerID) => known.get(layerID),
    all: () => [...known.values()],
    unread: () => [...unread],
    verify(layerID) {
      if (!idPattern.test(layerID)) fail("SNAPSHOT_DAMAGED", `'${layerID}' names no layer`);
      const under = verified.get(layerID) ?? check(layerID);
      verified.set(layerID, under);
      // Damage may be repaired by hand, so the next use checks again.
      under.catch(() => verified.delete(layerID));
      return under;
    },
    async remove(layerID) {
      if (!idPattern.test(layerID)) return;
      if (holdsOfAll > 0) return;
      const work = removeNow(layerID).finally(() => removing.delete(work));
      removing.add(work);
      await work;
    },
    async holdAll() {
      holdsOfAll++;
      await Promise.allSettled(removing);
      let isHeld = true;
      return () => {
        if (isHeld) holdsOfAll--;
        isHeld = false;
      };
    },
    sync,
  };
}

/** Returns the path in a line of `diff` of one of the lists. */
function pathIn(line: string): string {
  return /\.\/.*/.exec(line)?.[0]?.slice(2) ?? "its list of entries";
}

function layerFailure(error: unknown): Failure {
  const failure = asFailure(error);
  return failure.name === "DISK_FULL" ? new Failure("DISK_FULL", `a layer could not be written: ${failure.message}`, { cause: error }) : failure;
}
