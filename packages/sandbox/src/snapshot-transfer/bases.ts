// The files of base templates in object storage, sent once by the first node that needs them, for all checkpoints based on them.
import { rm } from "node:fs/promises";
import type { ChunkStore } from "./chunk-store.ts";
import type { ChunkThread } from "./chunk-thread.ts";
import { type BaseFile, readChunk } from "./describe.ts";
import { type Deployment, readBase, type TransferFile, writeBase } from "./manifest.ts";
import type { Packs } from "./packs.ts";

// manifests/bases/<content>   one node's archive, used by all: archives of other nodes differ, since their files have other times

export interface Bases {
  /** The base's chunks are in object storage when this returns. */
  readonly file: BaseFile;
}

export type BasesParts = { readonly store: ChunkStore; readonly packs: Packs; readonly thread: ChunkThread; readonly deployment: Deployment };

export function openBases({ store, packs, thread, deployment }: BasesParts): Bases {
  const known = new Map<string, Promise<TransferFile>>();

  async function find(content: string, rootfs: string): Promise<TransferFile> {
    const key = `bases/${content}`;
    const written = await store.manifest(key);
    const there = written === undefined ? undefined : readBase(written, deployment);
    if (there !== undefined) return there;
    const file = await packs.describeBase(content, rootfs);
    const archive = await packs.make(rootfs);
    try {
      await store.send(key, writeBase(file, deployment.key), [{ file, path: async () => archive }], (chunk) => readChunk(thread, chunk));
    } finally {
      await rm(archive, { force: true });
    }
    return file;
  }

  return {
    file(content, rootfs) {
      const finding = known.get(content) ?? find(content, rootfs);
      known.set(content, finding);
      finding.catch(() => known.delete(content));
      return finding;
    },
  };
}
