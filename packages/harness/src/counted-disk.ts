// A folder whose space ends at the n-th allocating write of a server and its children, which tests a full disk at each write.
import { execFileSync } from "node:child_process";
import { closeSync, mkdirSync, openSync, readSync, realpathSync, writeSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { makeHome, removeHome } from "./home.ts";

const SOURCE = fileURLToPath(new URL("counted-disk.c", import.meta.url));
/** The layout of counted-disk.c: 64 bits each, in this order. */
const fields = ["limit", "seen", "refused", "room", "torn"] as const;
const FIELD_BYTES = 8;

export type CountedDisk = {
  /** The server's home, on an ordinary disk. */
  readonly folder: string;
  /** The server's environment. Static programs among its children (runsc, envd) are not counted. */
  readonly env: Readonly<Record<string, string>>;
  /**
   * Allows `writes` more allocations and refuses the next: files cannot grow and names cannot be added until something is removed. With
   * `torn` the first refused write stores half of its data.
   */
  fillAfter(writes: number, torn?: boolean): void;
  free(): void;
  /** The number of refusals since `fillAfter`. */
  refused(): number;
  [Symbol.dispose](): void;
};

/** Arguments for `needs(…)`. */
export const countedDiskNeeds = ["cc"] as const;

export function openCountedDisk(): CountedDisk {
  const parent = makeHome();
  const folder = join(parent, "home");
  const control = join(parent, "control");
  mkdirSync(folder);
  const file = openSync(control, "w+");
  const write = (values: Record<(typeof fields)[number], bigint>) => {
    const bytes = Buffer.alloc(fields.length * FIELD_BYTES);
    for (const [at, name] of fields.entries()) bytes.writeBigInt64LE(values[name], at * FIELD_BYTES);
    writeSync(file, bytes, 0, bytes.length, 0);
  };
  const free = () => write({ limit: -1n, seen: 0n, refused: 0n, room: 0n, torn: 0n });
  free();
  return {
    folder,
    env: { LD_PRELOAD: build(parent), SVC_COUNTED_DISK_FOLDER: realpathSync(folder), SVC_COUNTED_DISK_CONTROL: control },
    fillAfter: (writes, torn = false) => write({ limit: BigInt(writes), seen: 0n, refused: 0n, room: 0n, torn: torn ? 1n : 0n }),
    free,
    refused() {
      const bytes = Buffer.alloc(FIELD_BYTES);
      readSync(file, bytes, 0, FIELD_BYTES, fields.indexOf("refused") * FIELD_BYTES);
      return Number(bytes.readBigInt64LE());
    },
    [Symbol.dispose]() {
      closeSync(file);
      removeHome(parent);
    },
  };
}

function build(folder: string): string {
  const library = join(folder, "counted-disk.so");
  execFileSync("cc", ["-std=c11", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"]);
  return library;
}
