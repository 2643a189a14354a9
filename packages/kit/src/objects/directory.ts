// Objects as files of a directory, for one machine or for several that share a file system.
import { randomBytes } from "node:crypto";
import { mkdir, open, opendir, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Durability } from "../database.ts";
import { syncAll } from "../sync.ts";
import { checkKey, type ObjectInfo, type Objects, tooLarge } from "./objects.ts";

// DIRECTORY/<key>           a complete object, or absent
// DIRECTORY/.part/<random>  an object being written; one older than an hour belongs to a killed writer. If .part itself is
//                           missing, the directory is not the one we opened, for example because a shared file system is not mounted

const PART = ".part";
const PART_KEPT_MS = 3600_000;
const isGone = (error: unknown) => ["ENOENT", "ENOTDIR"].includes((error as NodeJS.ErrnoException).code ?? "");
const goneAs =
  <T>(value: T) =>
  (error: unknown): T => {
    if (isGone(error)) return value;
    throw error;
  };

export async function openDirectoryObjects(directory: string, durability: Durability): Promise<Objects> {
  const parts = join(directory, PART);
  await mkdir(parts, { recursive: true, mode: 0o700 });
  for (const name of await readdir(parts)) {
    const left = await stat(join(parts, name)).catch(() => undefined);
    // A recent part may belong to another process that shares the directory.
    if (left !== undefined && left.mtimeMs < Date.now() - PART_KEPT_MS) await rm(join(parts, name), { force: true });
  }
  const pathOf = (key: string) => join(directory, checkKey(key));
  /** A missing file counts as absent only if the directory itself is still readable; otherwise the storage is unavailable. */
  const absentAs =
    <T>(value: T) =>
    async (error: unknown): Promise<T> => {
      if (!isGone(error)) throw error;
      await stat(parts).catch((cause: unknown) =>
        fail("OBJECTS_UNAVAILABLE", `${directory} cannot be read (${(cause as Error).message}): is its file system mounted?`, { cause }),
      );
      return value;
    };

  async function publish(part: string, path: string): Promise<void> {
    const made = await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await rename(part, path);
    if (durability !== "disk") return;
    // A new folder's name is stored in its parent, so the parents need a sync too.
    const folders = [dirname(path)];
    while (made !== undefined && folders.at(-1) !== dirname(made)) folders.push(dirname(folders.at(-1) as string));
    await syncAll(folders);
  }

  return {
    url: `file://${directory}`,
    async put(key, body) {
      const path = pathOf(key);
      const part = join(parts, randomBytes(12).toString("hex"));
      try {
        const file = await open(part, "wx", 0o600);
        try {
          await file.writeFile(body);
          if (durability === "disk") await file.sync();
        } finally {
          await file.close();
        }
        await publish(part, path);
      } catch (error) {
        await rm(part, { force: true });
        return absentAs<never>(undefined as never)(error).then(() => Promise.reject(error));
      }
    },
    async get(key, maxBytes, range) {
      const file = await open(pathOf(key), "r").catch(absentAs(undefined));
      if (file === undefined) return undefined;
      try {
        const { size } = await file.stat();
        const start = Math.min(range?.start ?? 0, size);
        const length = Math.min(range?.end ?? size, size) - start;
        if (length > maxBytes) tooLarge(key, length, maxBytes);
        const body = Buffer.allocUnsafe(Math.max(0, length));
        const { bytesRead } = await file.read(body, 0, body.length, start);
        return body.subarray(0, bytesRead);
      } finally {
        await file.close();
      }
    },
    async head(key) {
      const found = await stat(pathOf(key)).catch(absentAs(undefined));
      return found?.isFile() === true ? { key, sizeBytes: found.size, modifiedAtMs: found.mtimeMs } : undefined;
    },
    async *list(prefix) {
      await stat(parts).catch(absentAs(undefined));
      yield* below(directory, directory, prefix);
    },
    delete: (key) => rm(pathOf(key), { force: true }),
    close: async () => {},
  };
}

async function* below(directory: string, folder: string, prefix: string): AsyncGenerator<ObjectInfo> {
  const entries = await opendir(folder).catch(goneAs(undefined));
  for await (const entry of entries ?? []) {
    const path = join(folder, entry.name);
    const key = relative(directory, path);
    if (entry.name === PART) continue;
    // We descend only into folders that can hold keys with this prefix.
    if (entry.isDirectory() && (prefix.startsWith(`${key}/`) || `${key}/`.startsWith(prefix))) yield* below(directory, path, prefix);
    if (!entry.isFile() || !key.startsWith(prefix)) continue;
    const found = await stat(path).catch(goneAs(undefined));
    if (found !== undefined) yield { key, sizeBytes: found.size, modifiedAtMs: found.mtimeMs };
  }
}
