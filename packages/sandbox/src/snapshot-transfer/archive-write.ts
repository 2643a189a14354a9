// Writes an exported snapshot as one file: a tar archive of its manifest and its chunks, each an entry of its own.
import { tarEnd, tarHeader, tarPadding } from "@svc/contract/tar.ts";
import { type Chunk, chunksToSend, type Source } from "./describe.ts";

export const MANIFEST_ENTRY = "svc-snapshot";
export const CHUNK_FOLDER = "chunks/";
const BLOCK_BYTES = 512;

const entryOf = (path: string, sizeBytes: number) => tarHeader({ path, kind: "file", mode: 0o600, sizeBytes, modifiedAtSeconds: 0, target: "" });
const roundedUp = (bytes: number) => Math.ceil(bytes / BLOCK_BYTES) * BLOCK_BYTES;

/** Returns the size of the complete file. */
export function archiveBytes(manifest: Buffer, sources: readonly Source[]): number {
  let bytes = BLOCK_BYTES + roundedUp(manifest.length) + tarEnd().length;
  for (const { length } of chunksToSend(sources)) bytes += BLOCK_BYTES + roundedUp(length);
  return bytes;
}

export async function* writeArchive(manifest: Buffer, sources: readonly Source[], read: (chunk: Chunk) => Promise<Buffer>): AsyncGenerator<Buffer> {
  yield Buffer.concat([entryOf(MANIFEST_ENTRY, manifest.length), manifest, tarPadding(manifest.length)]);
  for (const chunk of chunksToSend(sources)) {
    yield entryOf(`${CHUNK_FOLDER}${chunk.sha256}`, chunk.length);
    yield await read(chunk);
    if (chunk.length % BLOCK_BYTES !== 0) yield tarPadding(chunk.length);
  }
  yield tarEnd();
}
