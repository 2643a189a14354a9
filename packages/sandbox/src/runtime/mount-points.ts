// Gives volumes their mount points beside a template: runsc makes a missing one in the root file system that it is given, which all sandboxes of a template share.
import type { Stats } from "node:fs";
import { chmod, chown, lstat, mkdir, readlink } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import type { MountedVolume, StartSpec } from "./runtime.ts";

const MOUNT_TIMEOUT_MS = 10_000;
/** The kernel's own bound. */
const MAX_LINKS = 40;

/**
 * Returns the template's root, or, where it lacks a volume's mount point, a read-only overlay of the template and a folder that has it. The overlay is
 * mounted in the sandbox's directory and goes with it.
 * @throws INVALID_REQUEST where a volume's path leads over something other than a directory.
 */
export async function rootWithMountPoints(spawner: Spawner, { image: { rootfs }, volumes = [], directory }: StartSpec): Promise<string> {
  const points = await Promise.all(volumes.map(({ path }) => resolved(rootfs, path)));
  const missing = points.filter(({ exists }) => !exists);
  if (missing.length === 0) return rootfs;
  if (/[:,\\]/.test(`${directory}${rootfs}`))
    fail("SETTING_INVALID", `${directory}, ${rootfs}: overlay file systems take no path with a colon, comma or backslash`);
  const [made, root] = [join(directory, "mount-points"), join(directory, "root")];
  for (const folder of [made, root]) await mkdir(folder, { mode: 0o755 });
  for (const { names } of missing) await makeLike(rootfs, made, names);
  await spawner.check(["mount", "-t", "overlay", "-o", `ro,lowerdir=${made}:${rootfs}`, "overlay", root], { timeoutMs: MOUNT_TIMEOUT_MS });
  return root;
}

/** Returns the volumes with the links of the template in their paths followed, for a runtime that follows none. */
export async function withoutLinks({ image: { rootfs }, volumes = [] }: StartSpec): Promise<readonly MountedVolume[]> {
  return await Promise.all(volumes.map(async (volume) => ({ ...volume, path: `/${(await resolved(rootfs, volume.path)).names.join("/")}` })));
}

/** The directories that lead to a mount point below the root, after links, which may not lead out of it. */
async function resolved(rootfs: string, path: string): Promise<{ readonly names: readonly string[]; readonly exists: boolean }> {
  let names: string[] = [];
  const left = path.split("/");
  for (let links = 0; left.length > 0; ) {
    const name = left.shift() ?? "";
    if (name === "" || name === ".") continue;
    if (name === "..") {
      names.pop();
      continue;
    }
    const at = join(rootfs, ...names, name);
    const stats = await there(at);
    if (stats === undefined) return { names: [...names, name, ...left.filter((each) => each !== "" && each !== ".")], exists: false };
    if (stats.isDirectory()) names.push(name);
    else if (stats.isSymbolicLink() && ++links <= MAX_LINKS) {
      const target = await readlink(at);
      if (target.startsWith("/")) names = [];
      left.unshift(...target.split("/"));
    } else fail("INVALID_REQUEST", `volumeMounts: ${path} leads over /${[...names, name].join("/")}, which is not a directory in the template`);
  }
  return { names, exists: true };
}

/** Makes the directories with the owners and modes that the template gives them, since those of the upper folder count. */
async function makeLike(rootfs: string, made: string, names: readonly string[]): Promise<void> {
  for (let depth = 1; depth <= names.length; depth++) {
    const part = names.slice(0, depth);
    const at = join(made, ...part);
    await mkdir(at, { mode: 0o755 }).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "EEXIST") throw error;
    });
    const like = await there(join(rootfs, ...part));
    if (like === undefined) continue;
    await chown(at, like.uid, like.gid);
    await chmod(at, like.mode & 0o7777);
  }
}

function there(path: string): Promise<Stats | undefined> {
  return lstat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
}
