// Captures on disk: one folder each, its files checksummed when written and verified before anything starts from them.
import { randomBytes } from "node:crypto";
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import type { Durability } from "@svc/kit/database.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { syncAll } from "@svc/kit/sync.ts";
import { z } from "zod";
import type { Capture, CaptureKind } from "../runtime/runtime.ts";
import { groundShape, openGrounds } from "./ground.ts";

// $SVC_HOME/snapshots/<captureID>/manifest.json   written last; a folder without it is half-made and nobody's
//                                 files/           what the driver wrote

const manifest = z.object({
  version: z.literal(1),
  kind: z.enum(["memory", "filesystem"]),
  runtime: z.string(),
  createdAt: z.string(),
  ground: groundShape.optional(),
  files: z.array(z.object({ name: z.string().regex(/^[\w.-]+$/), sizeBytes: z.number().int(), xxh128: z.string() })),
});

export type CaptureInfo = { readonly captureID: string; readonly kind: CaptureKind; readonly sizeBytes: number };

export interface Captures {
  newID(): string;
  /**
   * Has `write` fill a folder; whole and checksummed when it returns. Nothing is left when it throws. `rootfs`: the folder of a
   * template that it stands on, and that others may change.
   */
  take(captureID: string, kind: CaptureKind, runtime: string, write: (into: Capture) => Promise<void>, rootfs?: string): Promise<CaptureInfo>;
  /** Where a capture's files are. @throws SNAPSHOT_DAMAGED when it is not there or has no readable manifest. */
  find(captureID: string): Promise<Capture & CaptureInfo>;
  /** @throws SNAPSHOT_DAMAGED when a file is missing or is not byte for byte what was written, or its ground changed. */
  verify(captureID: string): Promise<void>;
  /** Keeps a capture on disk while `work` reads it, also when it is removed meanwhile. */
  holding<T>(captureID: string, work: () => Promise<T>): Promise<T>;
  remove(captureID: string): Promise<void>;
  /** Removes all but `inUse`: what a kill left half-made, and what nobody refers to any more. How many went. */
  sweep(inUse: ReadonlySet<string>): Promise<number>;
  /** Waits for what still goes to disk in the background. */
  close(): Promise<void>;
}

const CHECKSUM_TIMEOUT_MS = 10 * 60_000;
const idPattern = /^c[0-9a-f]{24}$/;

/** `durability`: with "disk" a capture is synced before `take` returns, else soon after. */
export async function openCaptures(folder: string, spawner: Spawner, log: Log, durability: Durability = "process"): Promise<Captures> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const syncing = new Set<Promise<void>>();
  const holders = new Map<string, number>();
  const doomed = new Set<string>();
  const grounds = openGrounds(spawner);
  const placeOf = (captureID: string) => join(folder, captureID);

  /** 128-bit XXH3 of files, by name: against damage, not against forgery; whoever can write here is the node itself. */
  async function checksums(directory: string, names: readonly string[]): Promise<Map<string, string>> {
    if (names.length === 0) return new Map();
    const output = await spawner.check(["xxh128sum", "--", ...names], { cwd: directory, timeoutMs: CHECKSUM_TIMEOUT_MS, repeatable: true });
    return new Map(
      output
        .trim()
        .split("\n")
        .map((line) => [line.slice(34), line.slice(0, 32)] as const),
    );
  }

  async function read(captureID: string) {
    const text = await readFile(join(placeOf(captureID), "manifest.json"), "utf8").catch((cause: unknown) =>
      fail("SNAPSHOT_DAMAGED", `capture ${captureID} is not on disk (${asFailure(cause).message})`, { cause }),
    );
    try {
      return manifest.parse(JSON.parse(text));
    } catch (cause) {
      return fail("SNAPSHOT_DAMAGED", `the manifest of capture ${captureID} cannot be read`, { cause });
    }
  }

  /** Files first, the manifest after them, then the names of both: a manifest on the disk never names what is not. */
  const syncFiles = (place: string, names: readonly string[]) => syncAll([...names.map((name) => join(place, "files", name)), join(place, "files")]);
  const syncManifest = (place: string) => syncAll([join(place, "manifest.json"), place, folder]);

  /** A capture outlives this process at once; a power cut only after this. */
  function syncLater(place: string, names: readonly string[]): void {
    const work = syncFiles(place, names)
      .then(() => syncManifest(place))
      .catch((error: unknown) => {
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") log.error({ err: error, place }, "a capture could not be synced to disk");
      })
      .finally(() => syncing.delete(work));
    syncing.add(work);
  }

  return {
    newID: () => `c${randomBytes(12).toString("hex")}`,
    async take(captureID, kind, runtime, write, rootfs) {
      const place = placeOf(captureID);
      const files = join(place, "files");
      try {
        await mkdir(files, { recursive: true, mode: 0o700 });
        const [ground] = await Promise.all([rootfs === undefined ? undefined : grounds.of(rootfs), write({ directory: files, kind })]);
        const names = (await readdir(files)).sort();
        const sums = await checksums(files, names);
        const entries = await Promise.all(
          names.map(async (name) => ({
            name,
            sizeBytes: (await stat(join(files, name))).size,
            xxh128: sums.get(name) ?? fail("CAPTURE_FAILED", `${name} got no checksum`),
          })),
        );
        const text = JSON.stringify({ version: 1, kind, runtime, createdAt: new Date().toISOString(), ground, files: entries } satisfies z.input<
          typeof manifest
        >);
        if (durability === "disk") await syncFiles(place, names);
        await writeFile(join(place, "manifest.new"), `${text}\n`);
        if (durability === "disk") await syncAll([join(place, "manifest.new")]);
        await rename(join(place, "manifest.new"), join(place, "manifest.json"));
        if (durability === "disk") await syncManifest(place);
        else syncLater(place, names);
        return { captureID, kind, sizeBytes: entries.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0) };
      } catch (error) {
        await rm(place, { recursive: true, force: true });
        throw captureFailure(error);
      }
    },
    async find(captureID) {
      const { kind, files } = await read(captureID);
      return { captureID, kind, directory: join(placeOf(captureID), "files"), sizeBytes: files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0) };
    },
    async verify(captureID) {
      const { files, ground } = await read(captureID);
      const names = files.map(({ name }) => name);
      const standing = ground === undefined ? undefined : grounds.check(ground);
      standing?.catch(() => undefined);
      const found = await checksums(join(placeOf(captureID), "files"), names).catch((cause: unknown) =>
        fail("SNAPSHOT_DAMAGED", `capture ${captureID} cannot be read: ${asFailure(cause).message}`, { cause }),
      );
      for (const { name, xxh128 } of files) {
        if (found.get(name) !== xxh128)
          fail("SNAPSHOT_DAMAGED", `capture ${captureID}: ${name} is not what was written (checksum ${found.get(name)}, expected ${xxh128})`);
      }
      await standing;
    },
    async holding(captureID, work) {
      holders.set(captureID, (holders.get(captureID) ?? 0) + 1);
      try {
        return await work();
      } finally {
        const left = (holders.get(captureID) ?? 1) - 1;
        if (left > 0) holders.set(captureID, left);
        else {
          holders.delete(captureID);
          if (doomed.delete(captureID)) await rm(placeOf(captureID), { recursive: true, force: true });
        }
      }
    },
    async remove(captureID) {
      if (holders.has(captureID)) doomed.add(captureID);
      else await rm(placeOf(captureID), { recursive: true, force: true });
    },
    async sweep(inUse) {
      const strays = (await readdir(folder)).filter((name) => idPattern.test(name) && !inUse.has(name));
      for (const captureID of strays) await rm(placeOf(captureID), { recursive: true, force: true, maxRetries: 5 });
      return strays.length;
    },
    async close() {
      await Promise.all(syncing);
    },
  };
}

function captureFailure(error: unknown): Failure {
  const failure = asFailure(error);
  if (failure.name !== "INTERNAL" && error instanceof Failure) return failure;
  return new Failure(failure.name === "DISK_FULL" ? "DISK_FULL" : "CAPTURE_FAILED", `the sandbox could not be captured: ${failure.message}`, { cause: error });
}
