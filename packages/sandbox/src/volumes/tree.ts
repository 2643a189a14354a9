// Paths inside a volume, resolved by the node without leaving it: sandboxes may put any link at any place, at any moment.
import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { type FileHandle, lchown, lstat, mkdir, open, readdir, readlink, rename, rmdir, unlink } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { VolumeStat } from "@svc/contract/volumes.ts";

/** Opens a directory for lookups alone, and never through a link; Node has no name for the flag. */
const O_PATH = 0o10000000;
const DIRECTORY = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;
const MAX_LINKS = 40;
/** The maximum number of entries of one listing. */
export const MAX_ENTRIES = 10_000;

/**
 * An open directory. What is below it is reached as /proc/self/fd/N/NAME, which the kernel looks up in the open directory itself, so that no path is walked
 * twice. A function that has one open by `await using` returns with `return await`, since it is closed as soon as the function returns.
 */
export class Folder implements AsyncDisposable {
  readonly #handle: FileHandle;

  constructor(handle: FileHandle) {
    this.#handle = handle;
  }

  at(name = ""): string {
    return `/proc/self/fd/${this.#handle.fd}${name === "" ? "" : `/${name}`}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#handle.close();
  }
}

export async function openRoot(path: string): Promise<Folder> {
  return new Folder(await open(path, DIRECTORY));
}

/** The last part of a path, in its open parent; `name` is "" for the root. */
export type Place = { readonly parent: Folder; readonly name: string };

type Options = {
  /** Creates missing parents, with these owners. */
  readonly creates?: { readonly uid: number; readonly gid: number } | undefined;
  /** Follows a link in the last part, too. */
  readonly follows?: boolean | undefined;
};

/**
 * Finds the parent of a path; the caller closes it. Links are followed within the volume: an absolute one begins at its root, and `..` of the root is the
 * root.
 * @throws VOLUME_PATH_NOT_FOUND, INVALID_REQUEST.
 */
export async function locate(root: string, path: string, { creates, follows }: Options = {}): Promise<Place> {
  if (path.includes("\0")) fail("INVALID_REQUEST", "path: holds a NUL");
  let folders = [await openRoot(root)];
  const todo = partsOf(path).reverse();
  let links = 0;
  const current = () => folders.at(-1) as Folder;
  const close = async (kept?: Folder) => {
    for (const each of folders) if (each !== kept) await each[Symbol.asyncDispose]();
  };
  try {
    for (let part = todo.pop(); part !== undefined; part = todo.pop()) {
      if (part === "..") {
        if (folders.length > 1) await (folders.pop() as Folder)[Symbol.asyncDispose]();
        continue;
      }
      const isLast = todo.length === 0;
      const target = isLast && follows !== true ? undefined : await linkAt(current(), part);
      if (target !== undefined) {
        if (++links > MAX_LINKS) fail("INVALID_REQUEST", `path: more than ${MAX_LINKS} links lead to '${path}'`);
        if (target.startsWith("/")) {
          await close(folders[0]);
          folders = folders.slice(0, 1);
        }
        todo.push(...partsOf(target).reverse());
        continue;
      }
      if (isLast) {
        const parent = current();
        await close(parent);
        folders = [];
        return { parent, name: part };
      }
      folders.push(await enter(current(), part, path, creates));
    }
    const parent = current();
    await close(parent);
    folders = [];
    return { parent, name: "" };
  } catch (error) {
    await close();
    throw error;
  }
}

function partsOf(path: string): string[] {
  return path.split("/").filter((part) => part !== "" && part !== ".");
}

async function linkAt(folder: Folder, name: string): Promise<string | undefined> {
  try {
    return await readlink(folder.at(name));
  } catch (error) {
    if (["EINVAL", "ENOENT", "ENAMETOOLONG"].includes((error as NodeJS.ErrnoException).code ?? "")) return undefined;
    throw error;
  }
}

async function enter(folder: Folder, name: string, path: string, creates: Options["creates"]): Promise<Folder> {
  const attempt = async () => new Folder(await open(folder.at(name), DIRECTORY));
  try {
    return await attempt();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" && creates !== undefined) {
      await mkdir(folder.at(name)).catch(unlessThere);
      await lchown(folder.at(name), creates.uid, creates.gid);
      return attempt();
    }
    throw notFound(error, path);
  }
}

function unlessThere(error: NodeJS.ErrnoException): void {
  if (error.code !== "EEXIST") throw error;
}

/** Turns the system's error into one that names the path in the volume. */
export function notFound(error: unknown, path: string): unknown {
  switch ((error as NodeJS.ErrnoException).code) {
    case "ENOENT":
      return failure("VOLUME_PATH_NOT_FOUND", `'${path}' does not exist in the volume`);
    case "ENOTDIR":
    case "ELOOP":
      return failure("VOLUME_PATH_NOT_FOUND", `'${path}': a part of it is not a directory`);
    case "ENAMETOOLONG":
      return failure("INVALID_REQUEST", `path: a part of '${path.slice(0, 100)}' is longer than a file's name can be`);
    default:
      return error;
  }
}

function failure(name: "VOLUME_PATH_NOT_FOUND" | "INVALID_REQUEST", message: string): unknown {
  try {
    return fail(name, message);
  } catch (error) {
    return error;
  }
}

/** @throws VOLUME_PATH_NOT_FOUND. */
export async function statOf({ parent, name }: Place, path: string): Promise<VolumeStat> {
  // The root is a directory that is already open; a final slash makes lstat look at it and not at the link in /proc.
  const found = await lstat(name === "" ? `${parent.at()}/.` : parent.at(name)).catch((error: unknown) => {
    throw notFound(error, path);
  });
  const type = found.isFile() ? "file" : found.isDirectory() ? "directory" : found.isSymbolicLink() ? "symlink" : "unknown";
  const target = type === "symlink" ? await readlink(parent.at(name)).catch(() => undefined) : undefined;
  return {
    name: name === "" ? "/" : name,
    type,
    path,
    size: found.size,
    mode: found.mode & 0o7777,
    uid: found.uid,
    gid: found.gid,
    atime: found.atime.toISOString(),
    mtime: found.mtime.toISOString(),
    ctime: found.ctime.toISOString(),
    ...(target === undefined ? {} : { target }),
  };
}

/** Lists a directory and those below it, to `depth`, parents first. @throws INVALID_REQUEST for more than MAX_ENTRIES. */
export async function listing(folder: Folder, path: string, depth: number, into: VolumeStat[] = []): Promise<VolumeStat[]> {
  const names = (await readdir(folder.at())).sort();
  if (into.length + names.length > MAX_ENTRIES)
    fail("INVALID_REQUEST", `'${path}' has more than ${MAX_ENTRIES} entries: list a directory below it, or with a smaller depth`);
  for (const name of names) {
    const below = join(path, name);
    // An entry that was removed meanwhile is not listed.
    const found = await statOf({ parent: folder, name }, below).catch(() => undefined);
    if (found === undefined) continue;
    into.push(found);
    if (found.type !== "directory" || depth <= 1) continue;
    const handle = await open(folder.at(name), DIRECTORY).catch(() => undefined);
    if (handle === undefined) continue;
    await using child = new Folder(handle);
    await listing(child, below, depth - 1, into);
  }
  return into;
}

/** Removes a file, or a directory with all below it; never follows a link. */
export async function removeAt({ parent, name }: Place): Promise<void> {
  const found = await lstat(parent.at(name));
  if (!found.isDirectory()) return unlink(parent.at(name));
  {
    await using folder = new Folder(await open(parent.at(name), DIRECTORY));
    for (const each of await readdir(folder.at())) {
      await removeAt({ parent: folder, name: each }).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== "ENOENT") throw error;
      });
    }
  }
  await rmdir(parent.at(name));
}

/** Moves a complete file to its place, replacing a file that is there. */
export function moveTo(from: string, { parent, name }: Place): Promise<void> {
  return rename(from, parent.at(name));
}

export const temporaryName = (): string => randomBytes(12).toString("hex");
