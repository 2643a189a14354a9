// Where the files of volumes are: in a file system image of the volume's size, or in a directory that other nodes may share.
import { mkdir, open, readdir, rename, rm, stat, statfs } from "node:fs/promises";
import { join } from "node:path";
import { asFailure, diskFull, fail, isDiskFull } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { haveLoopDevices } from "../runtime/disk.ts";
import { readMounts, unmountUnder } from "../runtime/mounts.ts";
import { lookForProgram } from "../runtime/programs.ts";
import { syncDirectory, type VolumeRecord } from "./volume-records.ts";

/** The directory that sandboxes mount, and one next to it for uploads, which sandboxes do not see. */
export type VolumeFolders = { readonly files: string; readonly incoming: string };

export interface VolumeDisk {
  /** Makes the storage of the volume; if that fails, nothing of it is left. Returns the bytes that count as used while the volume is empty. @throws DISK_FULL. */
  make(record: Omit<VolumeRecord, "emptyBytes">): Promise<number>;
  /** Returns the volume's folders, mounted where it needs a mount. @throws VOLUME_DAMAGED. */
  folders(record: VolumeRecord): Promise<VolumeFolders>;
  usedBytes(record: VolumeRecord): Promise<number>;
  /** Removes all of it; succeeds if there is nothing. */
  remove(volumeID: string): Promise<void>;
  /** The ids of all that is there, also of volumes without a record. */
  list(): Promise<string[]>;
  /** Unmounts what no sandbox uses. */
  close(): Promise<void>;
}

const MAKE_TIMEOUT_MS = 60_000;
const MOUNT_TIMEOUT_MS = 30_000;
const DU_TIMEOUT_MS = 60_000;
/** Counting a shared directory reads all of it, so a count is used for this long. */
const COUNT_MS = 10_000;
const MEBIBYTE = 1024 * 1024;
/** The disk keeps this much for the node after a volume was made. */
const LEFT_MB = 512;
/** mkfs.xfs refuses smaller images, which get ext4 instead. */
const MIN_XFS_MB = 300;
/** The journal and the inodes of an image come on top of the volume's size. */
const imageMegabytes = { xfs: (sizeMB: number) => Math.ceil(sizeMB * 1.02) + 80, ext4: (sizeMB: number) => Math.ceil(sizeMB * 1.06) + 16 };
type FileSystem = keyof typeof imageMegabytes;
const formatted: Record<FileSystem, readonly string[]> = {
  // -K keeps the allocated blocks; reflink and rmapbt would reserve space in every volume.
  xfs: ["mkfs.xfs", "-q", "-f", "-K", "-m", "reflink=0,rmapbt=0"],
  ext4: ["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0"],
};

export type DiskParts = { readonly directory: string; readonly spawner: Spawner; readonly log: Log };

/**
 * XFS writes 4 KiB blocks eight times as fast as ext4 on a loop device, and 1 MiB blocks twice as fast (measured on 2 cores, Linux 6.18).
 *
 * Images: the kernel enforces the size, for every sandbox and at once, and one volume cannot fill the disk of another. All blocks are allocated when the
 * volume is made, so a full host disk neither stops nor damages it.
 */
export function openImages({ directory, spawner, log }: DiskParts): VolumeDisk {
  const images = join(directory, "images");
  const mounts = join(directory, "mounts");
  const imageOf = (volumeID: string) => join(images, `${volumeID}.img`);
  const pointOf = (volumeID: string) => join(mounts, volumeID);
  const isMounted = (point: string) => readMounts().some((each) => each.point === point);

  async function mount(volumeID: string): Promise<string> {
    const point = pointOf(volumeID);
    if (isMounted(point)) return point;
    await mkdir(point, { recursive: true, mode: 0o700 });
    const argv = ["mount", "-o", "loop,nodev,nosuid,noatime", "--", imageOf(volumeID), point];
    const { code, stderr } = await spawner.run(argv, { timeoutMs: MOUNT_TIMEOUT_MS });
    if (code !== 0 && !isMounted(point))
      fail("VOLUME_DAMAGED", `volume ${volumeID} cannot be mounted: ${stderr.trim().slice(-300)}; \`xfs_repair\` or \`e2fsck -f\` of its image may repair it`);
    // Without it every byte would be in the page cache twice; a file system that cannot do it keeps the default.
    const device = readMounts().find((each) => each.point === point)?.source;
    if (device !== undefined) await spawner.run(["losetup", "--direct-io=on", device], { timeoutMs: MOUNT_TIMEOUT_MS });
    return point;
  }

  async function remove(volumeID: string): Promise<void> {
    await unmountUnder(spawner, pointOf(volumeID));
    for (const path of [`${imageOf(volumeID)}.tmp`, imageOf(volumeID)]) await rm(path, { force: true });
    await rm(pointOf(volumeID), { recursive: true, force: true });
  }

  async function makeAs(kind: FileSystem, volumeID: string, sizeMB: number): Promise<void> {
    const half = `${imageOf(volumeID)}.tmp`;
    const megabytes = imageMegabytes[kind](sizeMB);
    const noRoom = () => fail("DISK_FULL", `the disk that holds ${directory} has no ${megabytes} MiB for a volume: make room there, or ask for a smaller one`);
    // fallocate takes all that is left before it fails, which would stop everything else on the disk meanwhile.
    const { bavail, bsize } = await statfs(images);
    if (bavail * bsize < (megabytes + LEFT_MB) * MEBIBYTE) noRoom();
    try {
      await spawner.check(["fallocate", "-l", `${megabytes}M`, "--", half], { timeoutMs: MAKE_TIMEOUT_MS });
      await spawner.check([...formatted[kind], half], { timeoutMs: MAKE_TIMEOUT_MS });
      await rename(half, imageOf(volumeID));
      const point = await mount(volumeID);
      await mkdir(join(point, "incoming"), { mode: 0o700 });
      await mkdir(join(point, "files"));
      await openToAll(join(point, "files"));
      await syncDirectory(point);
      await syncDirectory(images);
    } catch (error) {
      await remove(volumeID);
      if (isDiskFull(error)) noRoom();
      throw error;
    }
  }

  const usedBytes = async (volumeID: string) => {
    const { blocks, bfree, bsize } = await statfs(await mount(volumeID));
    return (blocks - bfree) * bsize;
  };

  return {
    async make({ volumeID, sizeMB }) {
      await mkdir(images, { recursive: true, mode: 0o700 });
      const isLarge = sizeMB >= MIN_XFS_MB && (await lookForProgram("mkfs.xfs")) !== undefined;
      try {
        await makeAs(isLarge ? "xfs" : "ext4", volumeID, sizeMB);
      } catch (error) {
        if (!isLarge || asFailure(error).name === "DISK_FULL") throw error;
        log.warn({ err: error }, "a volume could not be made with XFS, which this kernel may lack: it gets ext4");
        await makeAs("ext4", volumeID, sizeMB);
      }
      return usedBytes(volumeID);
    },
    async folders({ volumeID }) {
      const point = await mount(volumeID);
      return { files: join(point, "files"), incoming: join(point, "incoming") };
    },
    usedBytes: async ({ volumeID, emptyBytes }) => Math.max(0, (await usedBytes(volumeID)) - emptyBytes),
    remove,
    async list() {
      const found = await readdir(images).catch(() => []);
      return [...new Set(found.map((name) => name.replace(/\.img(\.tmp)?$/, "")))];
    },
    async close() {
      await unmountUnder(spawner, mounts).catch((error: unknown) => log.warn({ err: error, mounts }, "volumes could not be unmounted"));
    },
  };
}

/** Directories: for file systems that several nodes share, and for hosts without loop devices. The size is checked, not enforced. */
export function openDirectories({ directory, spawner }: DiskParts): VolumeDisk {
  const data = join(directory, "data");
  const pathOf = (volumeID: string) => join(data, volumeID);
  const counted = new Map<string, { readonly atMs: number; readonly bytes: Promise<number> }>();

  async function count(volumeID: string): Promise<number> {
    const { code, stdout } = await spawner.run(["du", "-s", "-B1", "--", join(pathOf(volumeID), "files")], { timeoutMs: DU_TIMEOUT_MS });
    // If a file was removed meanwhile, du prints the sum and then ends with code 1.
    const bytes = Number(stdout.split("\t")[0]);
    if (Number.isNaN(bytes)) fail("INTERNAL", `du of volume ${volumeID} ended with ${code}`);
    return bytes;
  }

  return {
    async make({ volumeID }) {
      const path = pathOf(volumeID);
      try {
        await mkdir(join(path, "files"), { recursive: true });
        await mkdir(join(path, "incoming"), { mode: 0o700 });
        await openToAll(join(path, "files"));
        await syncDirectory(path);
        await syncDirectory(data);
        return 0;
      } catch (error) {
        await rm(path, { recursive: true, force: true });
        throw isDiskFull(error) ? diskFull(error) : error;
      }
    },
    async folders({ volumeID, name }) {
      const path = pathOf(volumeID);
      await stat(join(path, "files")).catch(() => fail("VOLUME_DAMAGED", `the files of volume '${name}' are not at ${path}; is the directory mounted?`));
      return { files: join(path, "files"), incoming: join(path, "incoming") };
    },
    usedBytes({ volumeID }) {
      const known = counted.get(volumeID);
      if (known !== undefined && performance.now() - known.atMs < COUNT_MS) return known.bytes;
      const bytes = count(volumeID);
      counted.set(volumeID, { atMs: performance.now(), bytes });
      bytes.catch(() => counted.delete(volumeID));
      return bytes;
    },
    async remove(volumeID) {
      counted.delete(volumeID);
      await rm(pathOf(volumeID), { recursive: true, force: true, maxRetries: 5 });
    },
    list: () => readdir(data).catch(() => []),
    close: async () => {},
  };
}

/** Images need loop devices and root; a shared directory excludes them, since two nodes cannot mount one image. */
export async function canUseImages(): Promise<boolean> {
  return process.getuid?.() === 0 && (await haveLoopDevices());
}

/** Any user of a sandbox may write to a new volume, whatever its number is in the template. */
async function openToAll(path: string): Promise<void> {
  const folder = await open(path, "r");
  try {
    await folder.chmod(0o777);
  } finally {
    await folder.close();
  }
}
