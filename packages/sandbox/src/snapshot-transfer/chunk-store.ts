// Chunks and manifests in object storage: a stored chunk is not sent again, and transfers are bounded in rate and concurrency.
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Failure, fail } from "@svc/contract/failures.ts";
import type { ObjectInfo, Objects } from "@svc/kit/objects/objects.ts";
import { CHUNK_BYTES } from "./chunk-thread.ts";
import { type Chunk, chunksToSend, type Source } from "./describe.ts";
import { MAX_MANIFEST_BYTES } from "./manifest.ts";
import { eachAtOnce, openPace } from "./pace.ts";
import type { FromPeer } from "./peer.ts";
import type { Placing } from "./placing.ts";

// manifests/<kind>/<id>    names chunks; a chunk that no manifest and no intent names is collected
// chunks/<2 hex>/<64 hex>  at most 4 MiB, named by SHA-256
// intents/<random>         the manifest of an export in progress
// collecting/<node>        a collection in progress: {"endsAtMs": …}
//
// A chunk that a manifest names is never collected: an export writes its intent, then looks for a collection; a collection announces
// itself, then reads intents and manifests. So at least one of them sees the other. An export that sees a collection waits before it
// relies on old chunks (new ones are never candidates); a collection deletes nothing after the end that it announced.

export const MANIFESTS = "manifests/";
export const CHUNKS = "chunks/";
export const INTENTS = "intents/";
export const COLLECTING = "collecting/";
/** The longest duration of an export; an older intent was left by a killed process. */
export const EXPORT_MS = 6 * 3600_000;
const LOOK_MS = 500;
/** The allowed clock difference, since the announced end of a collection is by its node's clock. */
export const CLOCKS_APART_MS = 60_000;

export type Sent = { readonly sentBytes: number; readonly sentChunks: number; readonly keptBytes: number; readonly keptChunks: number };

export type ChunkStoreOptions = {
  readonly objects: Objects;
  readonly concurrency: number;
  readonly bytesPerSecond: number;
  /** Counts a chunk by direction. */
  readonly count: (direction: "sent" | "kept" | "fetched" | "peer", bytes: number) => void;
};

export interface ChunkStore {
  /** All chunks, then the manifest, are stored when this returns. `read` returns a chunk's bytes. @throws TIMED_OUT past EXPORT_MS. */
  send(key: string, manifest: Buffer, sources: readonly Source[], read: (chunk: Chunk) => Promise<Buffer>): Promise<Sent>;
  manifest(key: string): Promise<Buffer | undefined>;
  /** Fetches all wanted chunks, first from another node that has them. @throws SNAPSHOT_DAMAGED if a chunk is missing or has other content. */
  fetch(placing: Placing, fromPeer?: FromPeer): Promise<void>;
  /** Removes the manifest; the next collection removes its chunks. */
  drop(key: string): Promise<void>;
}

export const chunkKey = (sha256: string) => `${CHUNKS}${sha256.slice(0, 2)}/${sha256}`;

const isPlaced = () => true;
function isRefused(error: unknown): false {
  if (error instanceof Failure && error.name === "SNAPSHOT_DAMAGED") return false;
  throw error;
}

export function openChunkStore({ objects, concurrency, bytesPerSecond, count }: ChunkStoreOptions): ChunkStore {
  const pace = openPace(bytesPerSecond, concurrency);

  /** Waits until no collection is in progress. */
  async function uncollected(): Promise<void> {
    for (;;) {
      let isUnderWay = false;
      for await (const { key } of objects.list(COLLECTING)) {
        const text = await objects.get(key, 1024);
        const { endsAtMs = 0 } = text === undefined ? {} : (JSON.parse(String(text)) as { endsAtMs?: number });
        isUnderWay ||= endsAtMs + CLOCKS_APART_MS > Date.now();
      }
      if (!isUnderWay) return;
      await sleep(LOOK_MS);
    }
  }

  return {
    async send(key, manifest, sources, read) {
      const intent = `${INTENTS}${randomBytes(12).toString("hex")}`;
      const lastMs = performance.now() + EXPORT_MS / 2;
      const sent = { sentBytes: 0, sentChunks: 0, keptBytes: 0, keptChunks: 0 };
      await objects.put(intent, manifest);
      try {
        await uncollected();
        await eachAtOnce(chunksToSend(sources), concurrency, async (chunk) => {
          if (performance.now() > lastMs) fail("TIMED_OUT", `the export was not finished after ${EXPORT_MS / 2000} s; see objects.bandwidth_mb_per_second`);
          const there: ObjectInfo | undefined = await objects.head(chunkKey(chunk.sha256));
          if (there?.sizeBytes === chunk.length) {
            sent.keptBytes += chunk.length;
            sent.keptChunks++;
            return count("kept", chunk.length);
          }
          await pace(chunk.length, async () => objects.put(chunkKey(chunk.sha256), await read(chunk), chunk.sha256));
          sent.sentBytes += chunk.length;
          sent.sentChunks++;
          count("sent", chunk.length);
        });
        await objects.put(`${MANIFESTS}${key}`, manifest);
        return sent;
      } finally {
        // If the delete fails or a kill prevents it, a later collection removes the intent.
        await objects.delete(intent).catch(() => undefined);
      }
    },
    manifest: (key) => objects.get(`${MANIFESTS}${key}`, MAX_MANIFEST_BYTES),
    async fetch(placing, fromPeer) {
      await eachAtOnce([...placing.wanted], concurrency, async ([sha256, length]) => {
        await pace(length, async () => {
          const given = await fromPeer?.(sha256);
          // A chunk that arrived damaged from the other node may be intact in object storage.
          if (given !== undefined && (await placing.place(sha256, given).then(isPlaced, isRefused))) return count("peer", length);
          const bytes = await objects.get(chunkKey(sha256), CHUNK_BYTES);
          if (bytes === undefined) fail("SNAPSHOT_DAMAGED", `chunk ${sha256} is not in ${objects.url}`);
          await placing.place(sha256, bytes);
          count("fetched", length);
        });
      });
    },
    drop: (key) => objects.delete(`${MANIFESTS}${key}`),
  };
}
