// A small file system for a test: it can be filled to the last byte and freed, and copied as a power cut would leave it.
import { execFileSync } from "node:child_process";
import { closeSync, copyFileSync, mkdirSync, openSync, readFileSync, rmSync, statfsSync, statSync, truncateSync, writeSync } from "node:fs";
import { join } from "node:path";
import { makeHome, removeHome } from "./home.ts";

const MIB = 1024 * 1024;
/** The sizes are tried in this order, so that not a single block remains free. */
const CHUNKS = [4 * MIB, 256 * 1024, 4096, 512];
const FILLER = "filler";
const MAX_COPIES = 50;

export type BoundedDisk = {
  /** The mount point, which serves as a server's home. */
  readonly path: string;
  /** Fills the free space except for `leaveBytes`. May be called again for space that was freed meanwhile. */
  fill(leaveBytes?: number): void;
  /** Frees the space that `fill` took. */
  free(): void;
  freeBytes(): number;
  /**
   * Copies what a power cut at this moment would leave on the disk; `use` mounts the copy in place of the file system. All processes with
   * open files there must have ended before `use` is called.
   */
  powerCut(): { use(): void };
  [Symbol.dispose](): void;
};

/** Arguments for `needs(…)`. */
export const boundedDiskNeeds = ["root", "mkfs.ext4", "mount", "umount", "losetup"] as const;

/** Uses ext4 on a loop device, like servers; data that is not synced stays in the page cache for the duration of the test. */
export function openBoundedDisk(sizeMB: number): BoundedDisk {
  const parent = makeHome();
  const path = join(parent, "home");
  const filler = join(path, FILLER);
  let image = join(parent, "image");
  let copies = 0;
  mkdirSync(path);
  closeSync(openSync(image, "w"));
  truncateSync(image, sizeMB * MIB);
  execFileSync("mkfs.ext4", ["-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", image]);
  mount();

  function mount(): void {
    // Without `commit` ext4 would write its journal every five seconds, and thus sync data that the server did not.
    execFileSync("mount", ["-o", "loop,commit=600", image, path]);
  }

  function freeBytes(): number {
    const { bavail, bsize } = statfsSync(path);
    return bavail * bsize;
  }

  return {
    path,
    freeBytes,
    fill(leaveBytes = 0) {
      const file = openSync(filler, "a");
      try {
        for (const size of CHUNKS) {
          const chunk = Buffer.alloc(size, 1);
          while (freeBytes() > leaveBytes && write(file, chunk)) {}
        }
      } finally {
        closeSync(file);
      }
      if (leaveBytes > 0) truncateSync(filler, Math.max(0, statSync(filler).size - Math.max(0, leaveBytes - freeBytes())));
    },
    free: () => rmSync(filler, { force: true }),
    powerCut() {
      const copy = join(parent, `image-${++copies}`);
      // A power cut happens at one moment, so a copy during which the kernel wrote is invalid.
      for (let left = MAX_COPIES; ; left--) {
        copyFileSync(image, copy);
        if (readFileSync(image).equals(readFileSync(copy))) break;
        if (left === 0) throw new Error("the disk was written to during each of the copies");
      }
      return {
        use() {
          execFileSync("umount", [path]);
          image = copy;
          mount();
        },
      };
    },
    [Symbol.dispose]() {
      execFileSync("umount", ["-l", path]);
      removeHome(parent);
    },
  };
}

function write(file: number, chunk: Buffer): boolean {
  try {
    return writeSync(file, chunk) === chunk.length;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOSPC") return false;
    throw error;
  }
}
