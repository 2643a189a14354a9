// Chunks that captures of this node hold already: of a snapshot that is fetched only what differs from them comes over the network.
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import type { Captures } from "../records/captures.ts";
import type { ChunkThread } from "./chunk-thread.ts";
import { chunksOf, fileShape, type TravelFile } from "./manifest.ts";

// TRAVEL/held/<captureID>   the chunks of its files, as they were described when it was offered or fetched

/** Those of captures that are gone are removed. */
const MAX_NOTES = 1_000;
/** Read for one fetch, the newest first: the names of 250 GiB of chunks. */
const MAX_READ_BYTES = 4 * 2 ** 20;
const CAPTURE_ID = /^c[0-9a-f]{24}$/;
const noteShape = z.array(fileShape);

export type HeldPlace = { readonly captureID: string; readonly file: string; readonly at: number; readonly length: number };

export interface HeldChunks {
  note(captureID: string, files: readonly TravelFile[]): Promise<void>;
  /** By the names of chunks, as far as notes tell; whether it is so `read` finds out. */
  all(): Promise<ReadonlyMap<string, HeldPlace>>;
  /** Undefined where the capture is gone, or does not hold it any more. */
  read(place: HeldPlace, sha256: string): Promise<Buffer | undefined>;
}

export async function openHeldChunks(folder: string, captures: Pick<Captures, "find" | "holding">, thread: ChunkThread): Promise<HeldChunks> {
  const notes = join(folder, "held");
  await mkdir(notes, { recursive: true, mode: 0o700 });
  let isFull = false;

  async function removeOver(): Promise<void> {
    const names = await readdir(notes);
    const gone = new Set<string>();
    for (const name of names)
      if (
        !CAPTURE_ID.test(name) ||
        !(await captures.find(name).then(
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
    async note(captureID, files) {
      if (isFull) await removeOver();
      if (isFull) return;
      // Without it more is fetched than need be; a full disk is no reason to fail.
      const path = join(notes, captureID);
      await writeFile(`${path}.new`, JSON.stringify(files))
        .then(() => rename(`${path}.new`, path))
        .catch(() => rm(`${path}.new`, { force: true }));
      isFull = (await readdir(notes)).length >= MAX_NOTES;
    },
    async all() {
      const places = new Map<string, HeldPlace>();
      const found = await Promise.all((await readdir(notes)).filter((name) => CAPTURE_ID.test(name)).map(async (name) => ({ name, ...(await sizeOf(name)) })));
      let bytes = 0;
      for (const { name: captureID, sizeBytes } of found.sort((a, b) => b.modifiedAtMs - a.modifiedAtMs)) {
        bytes += sizeBytes;
        if (bytes > MAX_READ_BYTES) break;
        const text = await readFile(join(notes, captureID), "utf8").catch(() => "[]");
        for (const file of safely(text)) for (const { sha256, at, length } of chunksOf(file)) places.set(sha256, { captureID, file: file.name, at, length });
      }
      return places;
    },
    read: ({ captureID, file, at, length }, sha256) =>
      captures
        .holding(captureID, async () => thread.read(join((await captures.find(captureID)).directory, file), at, length))
        .then(
          (found) => (found?.sha256 === sha256 ? found.bytes : undefined),
          () => undefined,
        ),
  };
}

/** One that a power cut emptied says nothing. */
function safely(text: string): readonly TravelFile[] {
  try {
    return noteShape.parse(JSON.parse(text));
  } catch {
    return [];
  }
}
