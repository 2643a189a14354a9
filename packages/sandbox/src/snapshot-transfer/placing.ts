// Writes incoming chunks in any order to their locations: each is verified, and at the end all must have come.
import { open } from "node:fs/promises";
import { fail } from "@svc/contract/failures.ts";
import type { ChunkThread } from "./chunk-thread.ts";
import type { Location } from "./chunk-worker.ts";
import { chunksOf, type TransferFile } from "./manifest.ts";

export type Target = { readonly file: TransferFile; readonly path: string };

export interface Placing {
  /** The sizes in bytes of the chunks that are still missing, by name. */
  readonly wanted: ReadonlyMap<string, number>;
  readonly wantedBytes: number;
  /** @throws SNAPSHOT_DAMAGED if the bytes do not match the name. */
  place(sha256: string, bytes: Buffer): Promise<void>;
  /** @throws SNAPSHOT_DAMAGED if a chunk is missing. */
  mustBeWhole(): void;
}

export async function openPlacing(thread: ChunkThread, targets: readonly Target[]): Promise<Placing> {
  const locations = new Map<string, Location[]>();
  const wanted = new Map<string, number>();
  for (const { file, path } of targets) {
    const made = await open(path, "wx", 0o600);
    await made.truncate(file.sizeBytes).finally(() => made.close());
    for (const { sha256, at, length } of chunksOf(file)) {
      if ((wanted.get(sha256) ?? length) !== length) fail("SNAPSHOT_DAMAGED", `its manifest gives chunk ${sha256} two sizes`);
      wanted.set(sha256, length);
      locations.set(sha256, [...(locations.get(sha256) ?? []), { path, at }]);
    }
  }
  const wantedBytes = [...wanted.values()].reduce((sum, length) => sum + length, 0);
  return {
    wanted,
    wantedBytes,
    async place(sha256, bytes) {
      const length = wanted.get(sha256);
      if (length === undefined) return;
      if (bytes.length !== length) fail("SNAPSHOT_DAMAGED", `chunk ${sha256} has ${bytes.length} bytes; its manifest says ${length}`);
      if (!(await thread.place(locations.get(sha256) ?? [], bytes, sha256)))
        fail("SNAPSHOT_DAMAGED", `chunk ${sha256} is not what was written: its checksum differs`);
      wanted.delete(sha256);
    },
    mustBeWhole() {
      const [missing] = wanted.keys();
      if (missing !== undefined) fail("SNAPSHOT_DAMAGED", `chunk ${missing} is missing, and ${wanted.size - 1} more: the data is incomplete`);
    },
  };
}
