// Chunks that come in, in any order, put where they belong; each is verified, and whoever ends it knows that all came.
import { open } from "node:fs/promises";
import { fail } from "@svc/contract/failures.ts";
import type { ChunkThread } from "./chunk-thread.ts";
import type { Place } from "./chunk-worker.ts";
import { chunksOf, type TransferFile } from "./manifest.ts";

export type Target = { readonly file: TransferFile; readonly path: string };

export interface Placing {
  /** Bytes of each chunk that is still to come, by its name. */
  readonly wanted: ReadonlyMap<string, number>;
  readonly wantedBytes: number;
  /** @throws SNAPSHOT_DAMAGED when they are not what their name says. */
  place(sha256: string, bytes: Buffer): Promise<void>;
  /** @throws SNAPSHOT_DAMAGED while one is missing. */
  mustBeWhole(): void;
}

export async function openPlacing(thread: ChunkThread, targets: readonly Target[]): Promise<Placing> {
  const places = new Map<string, Place[]>();
  const wanted = new Map<string, number>();
  for (const { file, path } of targets) {
    const made = await open(path, "wx", 0o600);
    await made.truncate(file.sizeBytes).finally(() => made.close());
    for (const { sha256, at, length } of chunksOf(file)) {
      if ((wanted.get(sha256) ?? length) !== length) fail("SNAPSHOT_DAMAGED", `its manifest gives chunk ${sha256} two sizes`);
      wanted.set(sha256, length);
      places.set(sha256, [...(places.get(sha256) ?? []), { path, at }]);
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
      if (!(await thread.place(places.get(sha256) ?? [], bytes, sha256)))
        fail("SNAPSHOT_DAMAGED", `chunk ${sha256} is not what was written: its checksum differs`);
      wanted.delete(sha256);
    },
    mustBeWhole() {
      const [missing] = wanted.keys();
      if (missing !== undefined) fail("SNAPSHOT_DAMAGED", `chunk ${missing} is missing, and ${wanted.size - 1} more: the data is incomplete`);
    },
  };
}
