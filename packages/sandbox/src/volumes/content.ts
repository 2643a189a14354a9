// The content of a volume as its routes show it: E2B's path, dir and file, for any client that has the volume's token.
import { constants } from "node:fs";
import { lchown, mkdir, open, readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { Failure, fail, isDiskFull } from "@svc/contract/failures.ts";
import type { VolumeMetadata, VolumeStat } from "@svc/contract/volumes.ts";
import { type Folder, listing, locate, moveTo, notFound, openRoot, type Place, removeAt, statOf, temporaryName } from "./tree.ts";
import type { VolumeFolders } from "./volume-disks.ts";

export type Owned = VolumeMetadata & { readonly force: boolean };

/** The owner of what a client makes without naming one: `user` of most templates. */
const DEFAULT_ID = 1000;
const FILE_MODE = 0o644;
const FOLDER_MODE = 0o755;
/** An upload of a node that was killed; no transfer lasts longer. */
const LEFT_OVER_MS = 24 * 3_600_000;

export async function readStat({ files }: VolumeFolders, path: string): Promise<VolumeStat> {
  const place = await locate(files, path);
  await using _ = place.parent;
  return await statOf(place, shown(path));
}

export async function list({ files }: VolumeFolders, path: string, depth: number): Promise<VolumeStat[]> {
  const place = await locate(files, path, { follows: true });
  await using parent = place.parent;
  const handle = await openFolder(place, path);
  if (handle === undefined) return await listing(parent, shown(path), depth);
  await using folder = handle;
  return await listing(folder, shown(path), depth);
}

/** Returns undefined for the root, which is the place's parent. */
async function openFolder({ parent, name }: Place, path: string): Promise<Folder | undefined> {
  if (name === "") return undefined;
  return openRoot(parent.at(name)).catch((error: unknown) => {
    throw notFound(error, path);
  });
}

export async function makeFolder({ files }: VolumeFolders, path: string, { uid, gid, mode, force }: Owned): Promise<VolumeStat> {
  const owner = { uid: uid ?? DEFAULT_ID, gid: gid ?? DEFAULT_ID };
  const place = await locate(files, path, { creates: force ? owner : undefined });
  await using parent = place.parent;
  const { name } = place;
  if (name === "") return await statOf(place, "/");
  const made = await mkdir(parent.at(name), { mode: mode ?? FOLDER_MODE }).then(
    () => true,
    async (error: NodeJS.ErrnoException) => {
      if (error.code !== "EEXIST") throw isDiskFull(error) ? full(error) : notFound(error, path);
      const found = await statOf(place, shown(path));
      if (found.type !== "directory") fail("INVALID_REQUEST", `'${path}' exists in the volume and is not a directory`);
      if (!force) fail("INVALID_REQUEST", `directory '${path}' exists in the volume already; force=true accepts that`);
      return false;
    },
  );
  if (made) await setMetadata(place, path, { ...owner, mode: mode ?? FOLDER_MODE });
  return await statOf(place, shown(path));
}

export async function changeMetadata({ files }: VolumeFolders, path: string, metadata: VolumeMetadata): Promise<VolumeStat> {
  const place = await locate(files, path);
  await using _ = place.parent;
  await statOf(place, shown(path));
  await setMetadata(place, path, metadata);
  return await statOf(place, shown(path));
}

async function setMetadata(place: Place, path: string, { uid, gid, mode }: VolumeMetadata): Promise<void> {
  const { parent, name } = place;
  const before = await statOf(place, path);
  if (uid !== undefined || gid !== undefined) await lchown(name === "" ? `${parent.at()}/.` : parent.at(name), uid ?? before.uid, gid ?? before.gid);
  if (mode === undefined || before.type === "symlink") return;
  // The mode is set on the open file, since chmod by name would follow a link that has taken its place.
  const file = await open(name === "" ? `${parent.at()}/.` : parent.at(name), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    await file.chmod(mode);
  } finally {
    await file.close();
  }
}

export type OpenFile = { readonly size: number; readonly stream: () => Readable; readonly close: () => Promise<void> };

/** Opens a file for reading; the caller closes it, or reads its stream to the end. */
export async function openFile({ files }: VolumeFolders, path: string): Promise<OpenFile> {
  const place = await locate(files, path, { follows: true });
  await using parent = place.parent;
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const file = await open(place.name === "" ? `${parent.at()}/.` : parent.at(place.name), flags).catch((error: unknown) => {
    throw notFound(error, path);
  });
  const found = await file.stat();
  if (found.isFile()) return { size: found.size, stream: () => file.createReadStream({ end: Math.max(0, found.size - 1) }), close: () => file.close() };
  await file.close();
  return fail("INVALID_REQUEST", `'${path}' is not a file`);
}

/**
 * Receives a file outside the volume's directory and moves it into place when it is complete and on disk, so that sandboxes see the old or the new file. `left`
 * is the number of bytes that still fit.
 */
export async function writeFile(folders: VolumeFolders, path: string, body: Readable, { uid, gid, mode, force }: Owned, left: number): Promise<VolumeStat> {
  const owner = { uid: uid ?? DEFAULT_ID, gid: gid ?? DEFAULT_ID };
  const place = await locate(folders.files, path, { creates: force ? owner : undefined, follows: true });
  await using parent = place.parent;
  if (place.name === "") fail("INVALID_REQUEST", "path: the root of a volume is a directory");
  const before = await statOf(place, path).catch(() => undefined);
  if (before !== undefined && before.type !== "file") fail("INVALID_REQUEST", `'${path}' exists in the volume and is not a file`);
  const temporary = join(folders.incoming, temporaryName());
  try {
    const file = await open(temporary, "wx", 0o600);
    try {
      let bytes = 0;
      // The body stays open on failure, because the client still has to get an answer.
      for await (const chunk of body.iterator({ destroyOnReturn: false })) {
        bytes += (chunk as Buffer).length;
        if (bytes > left) throw full();
        await file.write(chunk as Buffer);
      }
      // A file that is replaced keeps its owner and mode unless the client names others.
      await file.chown(uid ?? before?.uid ?? owner.uid, gid ?? before?.gid ?? owner.gid);
      await file.chmod(mode ?? before?.mode ?? FILE_MODE);
      await file.sync();
    } finally {
      await file.close();
    }
    await moveTo(temporary, place);
  } catch (error) {
    await rm(temporary, { force: true });
    if (error instanceof Failure) throw error;
    throw isDiskFull(error) ? full(error) : notFound(error, path);
  }
  const folder = await open(`${parent.at()}/.`, "r");
  await folder.sync().finally(() => folder.close());
  return await statOf(place, shown(path));
}

export async function remove({ files }: VolumeFolders, path: string): Promise<void> {
  const place = await locate(files, path);
  await using _ = place.parent;
  if (place.name === "") fail("INVALID_REQUEST", "path: the root of a volume cannot be removed; delete the volume");
  await removeAt(place).catch((error: unknown) => {
    throw notFound(error, path);
  });
}

/** Removes uploads that a killed node left behind. */
export async function sweepIncoming({ incoming }: VolumeFolders): Promise<void> {
  for (const name of await readdir(incoming)) {
    const path = join(incoming, name);
    const found = await stat(path).catch(() => undefined);
    if (found !== undefined && Date.now() - found.mtimeMs > LEFT_OVER_MS) await rm(path, { force: true });
  }
}

function full(cause?: unknown): Failure {
  return new Failure("DISK_FULL", "the volume is full: remove files from it, or make a larger one", cause === undefined ? {} : { cause });
}

const shown = (path: string): string => `/${path.split("/").filter(Boolean).join("/")}`;
