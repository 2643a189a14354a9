// Deletes the chunks that no manifest names any more, and what killed exports and collections left.
import type { Objects } from "@svc/kit/objects/objects.ts";
import { CHUNKS, CLOCKS_APART_MS, COLLECTING, EXPORT_MS, INTENTS, MANIFESTS } from "./chunk-store.ts";
import { chunkNamesIn, MAX_MANIFEST_BYTES } from "./manifest.ts";

/** The announced duration of a collection, after which it deletes nothing. */
const COLLECTION_MS = 10 * 60_000;
/** Deletions stop this long before the end, since the last call may take that long. */
const CALL_MS = 3 * 60_000;

export type CollectedChunks = {
  readonly deletedChunks: number;
  readonly deletedBytes: number;
  readonly chunks: number;
  readonly bytes: number;
  readonly manifests: number;
};

export type CollectOptions = {
  /** Identifies the node; it runs at most one collection at a time. */
  readonly nodeID: string;
  /** Younger chunks are never collected. */
  readonly graceMs: number;
  readonly nowMs?: () => number;
};

/** @throws SNAPSHOT_DAMAGED, and deletes nothing, if a manifest cannot be read, since the chunks that it names are unknown then. */
export async function collectChunks(objects: Objects, { nodeID, graceMs, nowMs = Date.now }: CollectOptions): Promise<CollectedChunks> {
  // I39
  const announced = `${COLLECTING}${nodeID}`;
  const begin = performance.now();
  await objects.put(announced, Buffer.from(JSON.stringify({ endsAtMs: nowMs() + COLLECTION_MS })));
  try {
    // The order matters: a chunk that is sent after this listing is not a candidate, and a listed chunk in use is named by a manifest read afterwards.
    const candidates: { readonly key: string; readonly sizeBytes: number }[] = [];
    const all = { chunks: 0, bytes: 0 };
    for await (const { key, sizeBytes, modifiedAtMs } of objects.list(CHUNKS)) {
      all.chunks++;
      all.bytes += sizeBytes;
      if (modifiedAtMs < nowMs() - graceMs - CLOCKS_APART_MS * Number(graceMs > 0)) candidates.push({ key, sizeBytes });
    }
    const { named, manifests } = await namedChunks(objects, nowMs());
    let deletedChunks = 0;
    let deletedBytes = 0;
    for (const { key, sizeBytes } of candidates) {
      if (named.has(key.slice(key.lastIndexOf("/") + 1))) continue;
      if (performance.now() - begin > COLLECTION_MS - CALL_MS) break;
      await objects.delete(key);
      deletedChunks++;
      deletedBytes += sizeBytes;
    }
    return { deletedChunks, deletedBytes, chunks: all.chunks - deletedChunks, bytes: all.bytes - deletedBytes, manifests };
  } finally {
    await objects.delete(announced).catch(() => undefined);
  }
}

/** Removes the announcement of this node's killed collection: it deletes nothing any more, so exports need not wait for its end. */
export const endCollection = (objects: Objects, nodeID: string) => objects.delete(`${COLLECTING}${nodeID}`);

async function namedChunks(objects: Objects, nowMs: number): Promise<{ named: Set<string>; manifests: number }> {
  const named = new Set<string>();
  let manifests = 0;
  for await (const { key, modifiedAtMs } of objects.list(COLLECTING)) if (modifiedAtMs < nowMs - EXPORT_MS) await objects.delete(key);
  // Intents are listed first: an export that ends between the two listings has written its manifest by then.
  for (const prefix of [INTENTS, MANIFESTS]) {
    for await (const { key, modifiedAtMs } of objects.list(prefix)) {
      if (prefix === INTENTS && modifiedAtMs < nowMs - EXPORT_MS) {
        await objects.delete(key);
        continue;
      }
      const written = await objects.get(key, MAX_MANIFEST_BYTES);
      if (written === undefined) continue;
      for (const sha256 of chunkNamesIn(written)) named.add(sha256);
      if (prefix === MANIFESTS) manifests++;
    }
  }
  return { named, manifests };
}
