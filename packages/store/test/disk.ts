// Small file systems for tests: a tmpfs of a given size, and an ext4 in a file whose bytes can be copied while it is in use.
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, rmSync, statfsSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeHome, removeHome } from "@svc/harness/home.ts";

/** An option of tests whose mounts need root. */
export const needsMounts = process.getuid?.() === 0 ? {} : { skip: "mounting a file system needs root" };

const SETTLE_MS = 100;

export type Disk = { readonly folder: string; readonly freeBytes: number; fill(leaveBytes?: number): void; makeRoom(): void } & Disposable;

function diskAt(folder: string, end: () => void): Disk {
  const ballast = join(folder, "ballast");
  return {
    folder,
    get freeBytes() {
      const { bavail, bsize } = statfsSync(folder);
      return bavail * bsize;
    },
    fill(leaveBytes = 0) {
      const { freeBytes } = this;
      if (freeBytes > leaveBytes) writeFileSync(ballast, Buffer.alloc(freeBytes - leaveBytes, 1), { flag: "a" });
    },
    makeRoom: () => rmSync(ballast, { force: true }),
    [Symbol.dispose]: end,
  };
}

export function smallDisk(sizeBytes: number): Disk {
  const place = makeHome();
  const folder = join(place, "home");
  mkdirSync(folder);
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${sizeBytes}`, "svc-test", folder]);
  return diskAt(folder, () => {
    execFileSync("umount", ["--lazy", folder]);
    removeHome(place);
  });
}

/**
 * `cutPower` mounts a copy of what is on the disk at this moment, without the page cache above
 * it. The one writer is stopped meanwhile, since a copy would otherwise mix two moments.
 */
export function imageDisk(sizeBytes: number): Disk & { cutPower(writer: number): Disk } {
  const base = makeHome();
  const mounts: string[] = [];
  const mount = (image: string) => {
    const folder = `${image}.mount`;
    mkdirSync(folder);
    execFileSync("mount", ["-o", "loop", image, folder]);
    mounts.push(folder);
    return folder;
  };
  const image = join(base, "disk");
  writeFileSync(image, "");
  truncateSync(image, sizeBytes);
  execFileSync("mkfs.ext4", ["-q", "-F", image]);
  const end = () => {
    for (const folder of mounts.splice(0)) execFileSync("umount", ["--lazy", folder]);
    removeHome(base);
  };
  let cuts = 0;
  return Object.assign(diskAt(mount(image), end), {
    cutPower(writer: number) {
      const copy = join(base, `cut-${++cuts}`);
      process.kill(writer, "SIGSTOP");
      // Wait until the data of its last system call has reached the disk.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, SETTLE_MS);
      copyFileSync(image, copy);
      process.kill(writer, "SIGCONT");
      return diskAt(mount(copy), () => {});
    },
  });
}
