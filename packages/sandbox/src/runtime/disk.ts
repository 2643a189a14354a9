// A size-limited writable layer over a template, for drivers that use the host's overlay file system.
//
// Measured on 2 cores: an ext4 image per sandbox costs 8 to 11 ms (mkfs without a journal, 0.7 MB on disk for 1 GiB), 10 ms (loop mount) and 5
// ms to remove; a full one answers ENOSPC. One image per home with a project quota per sandbox would be cheaper, but kernels built without
// XFS_QUOTA and QFMT_V2 have no such quota, and this works wherever loop devices exist. gVisor does not need it, since runsc limits the size of
// its own upper layer. Without loop devices the layer is a tmpfs of that size, in memory.
import { constants } from "node:fs";
import { access, mkdir, readdir, readFile, statfs } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { inGroup } from "./cgroup.ts";
import { type IdentityFiles, writeTree } from "./identity.ts";
import { COPY_TIMEOUT_MS, copyScript, packScript, runCopy, unpackScript } from "./layer-archive.ts";
import { unmountUnder } from "./mounts.ts";
import { eventually } from "./process.ts";
import type { StartSpec } from "./runtime.ts";

export type DiskKind = "image" | "memory";

export type Disk = {
  readonly kind: DiskKind;
  /**
   * Stacks a layer over the template and returns the path of the merged root: a fresh layer with the identity files, or a checkpointed one. The
   * program that does it runs in the given group.
   */
  stack(spec: Pick<StartSpec, "directory" | "image" | "limits" | "from">, files: IdentityFiles, entrances: readonly string[]): Promise<string>;
  /** Writes the layer as one archive, from which `stack` can recreate it. */
  pack(directory: string, into: string): Promise<void>;
  /** Copies the layer without the identity files. */
  copy(directory: string, into: string): Promise<void>;
  /** Removes what `stack` made; succeeds if there is nothing to remove. */
  unstack(directory: string): Promise<void>;
  /**
   * Waits, after the directory was removed, until no device is attached: a new mount namespace of another program that copied the mount keeps
   * the device busy a moment longer.
   */
  released(directory: string): Promise<void>;
  /** Returns the bytes used in the layer. */
  usedBytes(directory: string): Promise<number>;
};

export type DiskOptions = { readonly spawner: Spawner; readonly log: Log };

const STACK_TIMEOUT_MS = 30_000;
const RELEASE_BOUND_MS = 10_000;
/** The file that a filesystem checkpoint consists of. */
export const layerArchive = "layer.tar";

/**
 * Arguments: image kind, directory, rootfs, size in MiB, archive or an empty string. The file system has no journal, since the layer does not
 * outlive its sandbox.
 */
const stackScript = `set -e
kind=$1 dir=$2 rootfs=$3 size=$4 archive=$5
unpack() { ${unpackScript}; }
mkdir -p "$dir/layer" "$dir/root"
if [ "$kind" = image ]; then
  mkfs.ext4 -q -F -m 0 -O ^has_journal -E lazy_itable_init=1,nodiscard,root_owner=0:0 "$dir/layer.img" "$size"M
  mount -t ext4 -o loop,nodev "$dir/layer.img" "$dir/layer"
else
  mount -t tmpfs -o "nodev,mode=755,size=$size"m tmpfs "$dir/layer"
fi
mkdir "$dir/layer/upper" "$dir/layer/work"
chmod 755 "$dir/layer/upper"
if [ -n "$archive" ]; then unpack "$archive" "$dir/layer/upper"; else cp -a "$dir/identity/." "$dir/layer/upper/"; fi
mount -t overlay -o "lowerdir=$rootfs,upperdir=$dir/layer/upper,workdir=$dir/layer/work" overlay "$dir/root"`;

export async function openDisk({ spawner, log }: DiskOptions): Promise<Disk> {
  const kind: DiskKind = (await haveLoopDevices()) ? "image" : "memory";
  if (kind === "memory") log.warn("no loop devices here: what a sandbox writes to its disk is kept in memory and counts there");
  return {
    kind,
    async stack({ directory, image: { rootfs }, limits, from }, files, entrances) {
      // overlayfs separates these paths by colons and commas in its options.
      if (/[:,\\]/.test(`${directory}${rootfs}`))
        fail("SETTING_INVALID", `${directory}, ${rootfs}: overlay file systems take no path with a colon, comma or backslash`);
      await mkdir(directory, { recursive: true, mode: 0o711 });
      await writeTree(join(directory, "identity"), files);
      const archive = from === undefined ? "" : join(from.directory, layerArchive);
      const argv = ["/bin/sh", "-c", stackScript, "sh", kind, directory, rootfs, String(limits.diskSizeMB), archive];
      await spawner.check(inGroup(entrances, argv), { timeoutMs: from === undefined ? STACK_TIMEOUT_MS : COPY_TIMEOUT_MS });
      return join(directory, "root");
    },
    async pack(directory, into) {
      await runCopy(spawner, ["/bin/sh", "-c", packScript, "sh", join(into, layerArchive), join(directory, "layer/upper")]);
    },
    async copy(directory, into) {
      await runCopy(spawner, ["/bin/sh", "-c", copyScript, "sh", join(directory, "layer/upper"), into]);
    },
    async unstack(directory) {
      await unmountUnder(spawner, directory);
      // `mount -o loop` frees the device on unmount; this frees a device that a killed mount had attached.
      for (const device of await loopDevicesUnder(directory)) await spawner.run(["losetup", "-d", device]);
    },
    async released(directory) {
      const isFree = async () => (await loopDevicesUnder(directory)).length === 0;
      if (!(await eventually(isFree, RELEASE_BOUND_MS)))
        log.warn({ directory }, "a removed sandbox's loop device is still attached: some process has a copy of its mount");
    },
    async usedBytes(directory) {
      const { blocks, bfree, bsize } = await statfs(join(directory, "layer"));
      return (blocks - bfree) * bsize;
    },
  };
}

export async function haveLoopDevices(): Promise<boolean> {
  return access("/dev/loop-control", constants.R_OK | constants.W_OK).then(
    () => true,
    () => false,
  );
}

async function loopDevicesUnder(directory: string): Promise<string[]> {
  const names = (await readdir("/sys/block").catch(() => [])).filter((name) => name.startsWith("loop"));
  const backing = await Promise.all(names.map((name) => readFile(`/sys/block/${name}/loop/backing_file`, "utf8").catch(() => "")));
  return names.filter((_, index) => backing[index]?.startsWith(`${directory}/`)).map((name) => `/dev/${name}`);
}
