// Finds chunks that checkpoints of this node already contain, so that a fetched snapshot transfers only those that differ.
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import type { Checkpoints } from "../records/checkpoints.ts";
import type { ChunkThread } from "./chunk-thread.ts";
import { chunksOf, fileShape, type TransferFile } from "./manifest.ts";

// snapshot-transfer/held/<checkpointID>   the chunks of its files, as described when it was offered or fetched

/** Bounds the notes; those of removed checkpoints are deleted first. */
const MAX_NOTES = 1_000;
/** Bounds the notes read for one fetch, newest first: the names of 250 GiB of chunks. */
const MAX_READ_BYTES = 4 * 2 ** 20;
const CHECKPOINT_ID = /^c[0-9a-f]{24}$/;
const noteShape = z.array(fileShape);

export type LocalChunk = { readonly checkpointID: string; readonly file: string; readonly at: number; readonly length: number };

export interface LocalChunks {
  note(checkpointID: string, files: readonly TransferFile[]): Promise<void>;
  /** Returns local locations by chunk name, according to the notes; `read` verifies them. */
  all(): Promise<ReadonlyMap<string, LocalChunk>>;
  /** Returns undefined if the checkpoint is gone or has other content there. */
  read(chunk: LocalChunk, sha256: string): Promise<Buffer | undefined>;
}

export async function openLocalChunks(folder: string, checkpoints: Pick<Checkpoints, "find" | "holding">, thread: ChunkThread): Promise<LocalChunks> {
  const notes = join(folder, "held");
  await mkdir(notes, { recursive: true, mode: 0o700 });
  let isFull = false;

  async function removeOver(): Promise<void> {
    const names = await readdir(notes);
    const gone = new Set<string>();
    for (const name of names)
      if (
        !CHECKPOINT_ID.test(name) ||
        !(await checkpoints.find(name).then(
          () => true,
          () => false,
        ))
      )
        gone.add(name);
    for (const name of gone) await rm(join(notes, name), { force: true });
    isFull = names.length - gone.size >= MAX_NOTES;
  }
  await removeOver();

  const sizeOf = (name: string) =>
    stat(join(notes, name)).then(
      ({ size, mtimeMs }) => ({ sizeBytes: size, modifiedAtMs: mtimeMs }),
      () => ({ sizeBytes: 0, modifiedAtMs: 0 }),
    );

  return {
    async note(checkpointID, files) {
      if (isFull) await removeOver();
      if (isFull) return;
      // A missing note only makes a later fetch transfer more, so a full disk is ignored here.
      const path = join(notes, checkpointID);
      await writeFile(`${path}.new`, JSON.stringify(files))
        .then(() => rename(`${path}.new`, path))
        .catch(() => rm(`${path}.new`, { force: true }));
      isFull = (await readdir(notes)).length >= MAX_NOTES;
    },
    async all() {
      const chunks = new Map<string, LocalChunk>();
      const found = await Promise.all(
        (await readdir(notes)).filter((name) => CHECKPOINT_ID.test(name)).map(async (name) => ({ name, ...(await sizeOf(name)) })),
      );
      let bytes = 0;
      for (const { name: checkpointID, sizeBytes } of found.sort((a, b) => b.modifiedAtMs - a.modifiedAtMs)) {
        bytes += sizeBytes;
        if (bytes > MAX_READ_BYTES) break;
        const text = await readFile(join(notes, checkpointID), "utf8").catch(() => "[]");
        for (const file of safely(text)) for (const { sha256, at, length } of chunksOf(file)) chunks.set(sha256, { checkpointID, file: file.name, at, length });
      }
      return chunks;
    },
    read: ({ checkpointID, file, at, length }, sha256) =>
      checkpoints
        .holding(checkpointID, async () => thread.read(join((await checkpoints.find(checkpointID)).directory, file), at, length))
        .then(
          (found) => (found?.sha256 === sha256 ? found.bytes : undefined),
          () => undefined,
        ),
  };
}

/** A note damaged by a power loss counts as empty. */
function safely(text: string): readonly TransferFile[] {
  try {
    return noteShape.parse(JSON.parse(text));
  } catch {
    return [];
  }
}
