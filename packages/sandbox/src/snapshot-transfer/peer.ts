// Fetches chunks of a paused sandbox directly from its node while that node is up; object storage has all of them as well.
import { createReadStream } from "node:fs";
import { join } from "node:path";
import { CHECKPOINT_CHUNKS_PATH } from "@svc/contract/cluster.ts";
import { Failure, fail } from "@svc/contract/failures.ts";
import type { PeerClient } from "@svc/kit/peers/peer-client.ts";
import type { RawScope } from "@svc/kit/serve.ts";
import { z } from "zod";
import type { Checkpoints } from "../records/checkpoints.ts";
import { CHUNK_BYTES } from "./chunk-thread.ts";
import { chunksOf, type Manifest } from "./manifest.ts";

/** Bounds the concurrent reads by other nodes; beyond it they take the chunk from object storage. */
const MAX_AT_ONCE = 8;
const TIMEOUT_MS = 10_000;

const query = z.object({
  file: z.string().regex(/^[A-Za-z0-9][\w.-]{0,99}$/),
  at: z.coerce.number().int().min(0),
  length: z.coerce.number().int().min(1).max(CHUNK_BYTES),
});

export type Peer = { readonly url: string; readonly apiKey: string /** Absent: by plain HTTP. */; readonly fetch?: PeerClient["fetch"] | undefined };
/** Returns undefined if the chunk has to come from object storage. The caller verifies the bytes. */
export type FromPeer = (sha256: string) => Promise<Buffer | undefined>;

/** Reads from the files of a checkpoint; after the first request that fails, no further one is sent. */
export function openPeer({ url, apiKey, fetch: ask = fetch }: Peer, { captureID: checkpointID, files }: Manifest): FromPeer {
  const locations = new Map<string, { readonly file: string; readonly at: number; readonly length: number }>();
  for (const file of files) for (const { sha256, at, length } of chunksOf(file)) locations.set(sha256, { file: file.name, at, length });
  let isLost = false;
  return async (sha256) => {
    const location = locations.get(sha256);
    if (location === undefined || isLost) return undefined;
    try {
      const parameters = new URLSearchParams({ file: location.file, at: String(location.at), length: String(location.length) });
      const response = await ask(`${url}${CHECKPOINT_CHUNKS_PATH}/${checkpointID}?${parameters}`, {
        headers: { "x-api-key": apiKey },
        signal: AbortSignal.timeout(TIMEOUT_MS),
      });
      if (!response.ok || Number(response.headers.get("content-length")) !== location.length) {
        await response.body?.cancel();
        // A busy node is asked again for later chunks.
        isLost ||= response.status !== 429;
        return undefined;
      }
      return Buffer.from(await response.arrayBuffer());
    } catch {
      isLost = true;
      return undefined;
    }
  };
}

/** Adds the route for parts of checkpoint files to the `raw` scope of serve(), for nodes that have the API key. */
export function peerRoutes(checkpoints: Pick<Checkpoints, "find" | "holding">): (scope: RawScope) => void {
  let underWay = 0;
  return (scope) => {
    scope.get(
      `${CHECKPOINT_CHUNKS_PATH}/:checkpointID`,
      { exposeHeadRoute: false, config: { operation: "checkpointChunk" } as object },
      async (request, reply) => {
        const { checkpointID } = request.params as { checkpointID: string };
        const asked = query.safeParse(request.query);
        if (!asked.success || !/^c[0-9a-f]{24}$/.test(checkpointID)) return fail("INVALID_REQUEST", "expected a checkpoint's id and ?file=NAME&at=N&length=N");
        if (underWay >= MAX_AT_ONCE)
          throw new Failure("TOO_MANY_REQUESTS", `${underWay} nodes are reading from this node, the maximum`, { retryAfterSeconds: 1 });
        underWay++;
        try {
          const { file, at, length } = asked.data;
          const bytes = await checkpoints.holding(checkpointID, async () => read(join((await checkpoints.find(checkpointID)).directory, file), at, length));
          return await reply.header("content-length", bytes.length).type("application/octet-stream").send(bytes);
        } finally {
          underWay--;
        }
      },
    );
  };
}

async function read(path: string, at: number, length: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of createReadStream(path, { start: at, end: at + length - 1 })) parts.push(part as Buffer);
  return Buffer.concat(parts);
}
