// Checkpoints on disk: one folder each; the files are checksummed when written and verified before anything starts from them.
import { randomBytes } from "node:crypto";
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { asFailure, Failure, fail, isDiskFull } from "@svc/contract/failures.ts";
import type { Durability } from "@svc/kit/database.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { syncAll } from "@svc/kit/sync.ts";
import { z } from "zod";
import { missingHere, type Processor, processorShape, thisProcessor } from "../runtime/cpu.ts";
import type { Checkpoint, CheckpointKind } from "../runtime/runtime.ts";
import { bootID } from "./clock.ts";
import { groundShape, openGrounds } from "./ground.ts";
import { checkReached, checkSealed, failDamaged, isOnDisk, isSealed, markOnDisk, sealedAs, sealedShape } from "./sealed.ts";
import { openSums } from "./sums.ts";

// $SVC_HOME/snapshots/<checkpointID>/manifest.json   written last; a folder without it is incomplete and unreferenced
//                                 files/           written by the driver, or linked from layers sealed before
//                                 on-disk          exists once all of it has reached the disk
// $SVC_HOME/snapshots/discarded-<checkpointID>/      being deleted

const madeWithShape = z.object({
  /** The same as in SandboxRecord. */
  templateID: z.string(),
  envd: z.string(),
  envdVersion: z.string(),
  initKey: z.string().optional(),
  /** The runsc that wrote the memory, a file name in `bin` of the home. */
  runsc: z.string().optional(),
});
/** The programs and the key of a checkpoint, which every restore needs. */
export type MadeWith = z.output<typeof madeWithShape>;

const manifest = z.object({
  version: z.literal(1),
  kind: z.enum(["memory", "filesystem"]),
  runtime: z.string(),
  createdAt: z.string(),
  ground: groundShape.optional(),
  /** Absent in checkpoints of earlier versions. */
  madeWith: madeWithShape.optional(),
  /** The processor on which the memory was taken. */
  processor: processorShape.optional(),
  /** The boot that wrote it; present when there are sealed files. */
  bootID: z.string().optional(),
  files: z.array(
    z
      .object({ name: z.string().regex(/^[\w.-]+$/), sizeBytes: z.number().int() })
      .and(z.union([z.object({ xxh128: z.string() }), z.object({ sealed: sealedShape })])),
  ),
});
type FileEntry = z.output<typeof manifest>["files"][number];

export type CheckpointInfo = { readonly checkpointID: string; readonly kind: CheckpointKind; readonly sizeBytes: number };
export type FoundCheckpoint = Checkpoint & CheckpointInfo & { readonly initKey: string | undefined; readonly processor: Processor | undefined };
/** `rootfs`: the template's folder that the checkpoint depends on, and that others may change. */
export type CheckpointOrigin = Omit<MadeWith, "runsc"> & {
  readonly rootfs?: string | undefined;
  /** If false, only this process uses the checkpoint, so it is never synced. */
  readonly isKept?: boolean | undefined;
  /** The processor on which the memory was taken; absent: this machine's. */
  readonly processor?: Processor | undefined;
};

export interface Checkpoints {
  newID(): string;
  /** Lets `write` fill a folder; the checkpoint is complete and checksummed when this resolves. Nothing is left when it throws. */
  take(
    checkpointID: string,
    kind: CheckpointKind,
    runtime: string,
    write: (into: Checkpoint) => Promise<void>,
    origin: CheckpointOrigin,
  ): Promise<CheckpointInfo>;
  /** Returns the location of a checkpoint's files. @throws SNAPSHOT_DAMAGED when it does not exist or its manifest is unreadable. */
  find(checkpointID: string): Promise<FoundCheckpoint>;
  /**
   * Verifies every file, and the template's files (ground.ts). With `isToRun` false the processor is not checked, since the checkpoint is only sent
   * elsewhere or read for its files.
   * @throws SNAPSHOT_DAMAGED when a file is missing or differs from what was written, or the template's files have changed; SNAPSHOT_UNSUITABLE on another
   * processor.
   */
  verify(checkpointID: string, isToRun?: boolean): Promise<void>;
  /** Keeps a checkpoint on disk while `work` reads it, even if it is removed meanwhile. */
  holding<T>(checkpointID: string, work: () => Promise<T>): Promise<T>;
  remove(checkpointID: string): Promise<void>;
  /** Keeps every checkpoint on disk until the returned function is called; removals that are requested meanwhile happen then. */
  holdAll(): Promise<() => Promise<void>>;
  /** Returns all checkpoints except `inUse`: incomplete ones that a kill left, and unreferenced ones. */
  strays(inUse: ReadonlySet<string>): Promise<string[]>;
  /** Waits for the syncs in the background. */
  close(): Promise<void>;
}

const idPattern = /^c[0-9a-f]{24}$/;
const DISCARDED = "discarded-";

/** With `durability` "disk" a checkpoint is synced before `take` resolves, else soon after. */
export async function openCheckpoints(folder: string, spawner: Spawner, log: Log, durability: Durability = "process"): Promise<Checkpoints> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const syncing = new Set<Promise<void>>();
  const holders = new Map<string, number>();
  const doomed = new Set<string>();
  let holdsOfAll = 0;
  const discarding = new Set<Promise<void>>();
  const grounds = openGrounds(spawner);
  const sums = openSums(spawner);
  const directoryOf = (checkpointID: string) => join(folder, checkpointID);

  async function entriesOf(directory: string, names: readonly string[]): Promise<FileEntry[]> {
    const unsealed = names.filter((name) => !isSealed(name));
    const found = await sums.known(directory, unsealed);
    return Promise.all(
      names.map(async (name) => {
        if (isSealed(name)) {
          const { sizeBytes, ...sealed } = await sealedAs(join(directory, name));
          return { name, sizeBytes, sealed };
        }
        const { size: sizeBytes } = await stat(join(directory, name));
        return { name, sizeBytes, xxh128: found.get(name) ?? fail("CHECKPOINT_FAILED", `${name} got no checksum`) };
      }),
    );
  }

  async function read(checkpointID: string) {
    const text = await readFile(join(directoryOf(checkpointID), "manifest.json"), "utf8").catch((cause: unknown) =>
      failDamaged(checkpointID, `is not on disk (${asFailure(cause).message})`, cause),
    );
    try {
      return manifest.parse(JSON.parse(text));
    } catch (cause) {
      return failDamaged(checkpointID, "has a manifest that cannot be read", cause);
    }
  }

  /** Syncs the files, then the manifest, then the folders, so that a manifest on disk never names a file that is not there. */
  const syncFiles = (directory: string, names: readonly string[]) =>
    syncAll([...names.map((name) => join(directory, "files", name)), join(directory, "files")]);
  const syncManifest = (directory: string) => syncAll([join(directory, "manifest.json"), directory, folder]);

  /** Syncs in the background. A checkpoint survives the end of this process anyway, but a power cut only after this. */
  function syncLater(directory: string, names: readonly string[]): void {
    const work = syncFiles(directory, names)
      .then(() => syncManifest(directory))
      .then(() => markOnDisk(directory))
      .catch((error: unknown) => {
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") log.error({ err: error, directory }, "a checkpoint could not be synced to disk");
      })
      .finally(() => syncing.delete(work));
    syncing.add(work);
  }

  /** Syncs the checkpoints that a killed node did not sync; for those of another boot it is too late, they are marked or not. */
  async function syncUnmarked(): Promise<void> {
    for (const checkpointID of (await readdir(folder)).filter((name) => idPattern.test(name))) {
      const kept = await read(checkpointID).catch(() => undefined);
      if (kept?.bootID !== bootID() || (await isOnDisk(directoryOf(checkpointID)))) continue;
      syncLater(
        directoryOf(checkpointID),
        kept.files.map(({ name }) => name),
      );
    }
  }
  /** Renames the folder before removing it, so that a sync in the background cannot put its marker into a folder that is being emptied. */
  async function discard(checkpointID: string): Promise<void> {
    const gone = join(folder, `${DISCARDED}${checkpointID}`);
    try {
      await rename(directoryOf(checkpointID), gone);
    } catch (error) {
      // If the new name does not fit on the disk, a marker would not fit either.
      if (isDiskFull(error)) return rm(directoryOf(checkpointID), { recursive: true, force: true, maxRetries: 3 });
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    }
    await rm(gone, { recursive: true, force: true });
  }

  for (const left of (await readdir(folder)).filter((name) => name.startsWith(DISCARDED))) await rm(join(folder, left), { recursive: true, force: true });
  await syncUnmarked();

  return {
    newID: () => `c${randomBytes(12).toString("hex")}`,
    async take(checkpointID, kind, runtime, write, { rootfs, isKept = true, processor = thisProcessor(), ...madeWith }) {
      const directory = directoryOf(checkpointID);
      const files = join(directory, "files");
      try {
        await mkdir(files, { recursive: true, mode: 0o700 });
        const [ground] = await Promise.all([rootfs === undefined ? undefined : grounds.of(rootfs), write({ directory: files, kind })]);
        const names = (await readdir(files)).sort();
        const entries = await entriesOf(files, names);
        const text = JSON.stringify({
          version: 1,
          kind,
          runtime,
          createdAt: new Date().toISOString(),
          ground,
          madeWith: { ...madeWith, runsc: await notedRunsc(files) },
          ...(kind === "memory" ? { processor } : {}),
          ...(names.some(isSealed) ? { bootID: bootID() } : {}),
          files: entries,
        } satisfies z.input<typeof manifest>);
        const isSynced = isKept && durability === "disk";
        if (isSynced) await syncFiles(directory, names);
        await writeFile(join(directory, "manifest.new"), `${text}\n`);
        if (isSynced) await syncAll([join(directory, "manifest.new")]);
        await rename(join(directory, "manifest.new"), join(directory, "manifest.json"));
        if (isSynced) {
          await syncManifest(directory);
          await markOnDisk(directory);
        } else if (isKept) syncLater(directory, names);
        return { checkpointID, kind, sizeBytes: bytesOnDisk(entries) };
      } catch (error) {
        await rm(directory, { recursive: true, force: true });
        throw checkpointFailure(error);
      }
    },
    async find(checkpointID) {
      const { kind, files, madeWith, processor } = await read(checkpointID);
      return { checkpointID, kind, directory: join(directoryOf(checkpointID), "files"), sizeBytes: bytesOnDisk(files), initKey: madeWith?.initKey, processor };
    },
    async verify(checkpointID, isToRun = true) {
      const { files, ground, processor, bootID: writtenIn } = await read(checkpointID);
      const misfit = processor === undefined || !isToRun ? undefined : missingHere(processor, thisProcessor());
      if (misfit !== undefined)
        fail(
          "SNAPSHOT_UNSUITABLE",
          `checkpoint ${checkpointID} cannot be resumed with its memory: ${misfit}; move it to a node whose processor has these features (svc move --to NODE), or start from its files alone (svc resume --files-only)`,
        );
      const names = files.flatMap((file) => ("sealed" in file ? [] : [file.name]));
      const standing = ground === undefined ? undefined : grounds.check(ground);
      standing?.catch(() => undefined);
      const found = await sums
        .computed(join(directoryOf(checkpointID), "files"), names)
        .catch((cause: unknown) => failDamaged(checkpointID, `cannot be read: ${asFailure(cause).message}`, cause));
      for (const file of files) {
        if ("sealed" in file)
          await checkSealed(checkpointID, join(directoryOf(checkpointID), "files", file.name), { ...file.sealed, sizeBytes: file.sizeBytes });
        else if (found.get(file.name) !== file.xxh128)
          failDamaged(checkpointID, `has another ${file.name} than was written (checksum ${found.get(file.name)}, expected ${file.xxh128})`);
      }
      if (names.length < files.length) await checkReached(checkpointID, directoryOf(checkpointID), writtenIn);
      await standing;
    },
    async holding(checkpointID, work) {
      holders.set(checkpointID, (holders.get(checkpointID) ?? 0) + 1);
      try {
        return await work();
      } finally {
        const left = (holders.get(checkpointID) ?? 1) - 1;
        if (left > 0) holders.set(checkpointID, left);
        else {
          holders.delete(checkpointID);
          if (holdsOfAll === 0 && doomed.delete(checkpointID)) await discard(checkpointID);
        }
      }
    },
    async remove(checkpointID) {
      if (holdsOfAll > 0 || holders.has(checkpointID)) return void doomed.add(checkpointID);
      const work = discard(checkpointID).finally(() => discarding.delete(work));
      discarding.add(work);
      await work;
    },
    async holdAll() {
      holdsOfAll++;
      await Promise.allSettled(discarding);
      let isHeld = true;
      return async () => {
        if (!isHeld) return;
        isHeld = false;
        if (--holdsOfAll > 0) return;
        for (const checkpointID of [...doomed]) if (!holders.has(checkpointID) && doomed.delete(checkpointID)) await discard(checkpointID);
      };
    },
    strays: async (inUse) => (await readdir(folder)).filter((name) => idPattern.test(name) && !inUse.has(name)),
    async close() {
      await Promise.all(syncing);
    },
  };
}

/** Reads which runsc wrote the memory; the gVisor driver stores that next to it. */
async function notedRunsc(files: string): Promise<string | undefined> {
  return readFile(join(files, "runsc"), "utf8").catch(() => undefined);
}

/** Returns the bytes on disk; most of a sealed file's size is holes. */
function bytesOnDisk(files: readonly FileEntry[]): number {
  return files.reduce((sum, file) => sum + ("sealed" in file ? file.sealed.heldBytes : file.sizeBytes), 0);
}

function checkpointFailure(error: unknown): Failure {
  const failure = asFailure(error);
  if (failure.name !== "INTERNAL" && error instanceof Failure) return failure;
  return new Failure(failure.name === "DISK_FULL" ? "DISK_FULL" : "CHECKPOINT_FAILED", `no checkpoint of the sandbox could be made: ${failure.message}`, {
    cause: error,
  });
}
