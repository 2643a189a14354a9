// Reads and writes files in chunks of 4 MiB, each named by its SHA-256, on a thread that is started when there is work.
import { Worker } from "node:worker_threads";
import { fail } from "@svc/contract/failures.ts";
import type { FromChunks, Location, ToChunks } from "./chunk-worker.ts";

export const CHUNK_BYTES = 4 * 2 ** 20;
/** The thread starts in about 50 ms, but takes memory while it lives, so it ends after this idle time. */
const IDLE_MS = 30_000;
const MAX_HEAP_MB = 64;

export interface ChunkThread {
  /** Returns the chunk's name; undefined if it contains only zeros. */
  hash(path: string, at: number, length: number): Promise<string | undefined>;
  read(path: string, at: number, length: number): Promise<{ readonly sha256: string; readonly bytes: Buffer } | undefined>;
  /** Returns false, and writes nothing, if the hash of `bytes` differs. Transfers `bytes` to the thread. @throws DISK_FULL with the system's code. */
  place(locations: readonly Location[], bytes: Buffer, sha256: string): Promise<boolean>;
  close(): Promise<void>;
}

export function openChunkThread(): ChunkThread {
  let worker: Worker | undefined;
  let idle: NodeJS.Timeout | undefined;
  let nextID = 1;
  const waiting = new Map<number, (answer: FromChunks) => void>();

  function started(): Worker {
    if (worker !== undefined) return worker;
    const mine = new Worker(new URL("./chunk-worker.ts", import.meta.url), {
      name: "chunks",
      env: {},
      execArgv: ["--disable-warning=ExperimentalWarning"],
      resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
    });
    worker = mine;
    mine.unref();
    mine.on("message", (answer: FromChunks) => {
      waiting.get(answer.id)?.(answer);
      waiting.delete(answer.id);
      if (waiting.size === 0) endWhenIdle();
    });
    const lost = (why: string) => {
      if (worker !== mine) return;
      worker = undefined;
      for (const [id, done] of waiting) done({ id, error: { message: why } });
      waiting.clear();
    };
    mine.once("error", (error) => lost(`the thread for chunks failed: ${error.message}`));
    mine.once("exit", () => lost("the thread for chunks ended"));
    return mine;
  }

  function endWhenIdle(): void {
    worker?.unref();
    clearTimeout(idle);
    idle = setTimeout(() => {
      const idleWorker = worker;
      worker = undefined;
      void idleWorker?.terminate();
    }, IDLE_MS);
    idle.unref();
  }

  async function ask(message: (id: number) => ToChunks, moved: ArrayBuffer[] = []): Promise<FromChunks> {
    clearTimeout(idle);
    const id = nextID++;
    const answer = await new Promise<FromChunks>((done) => {
      waiting.set(id, done);
      const thread = started();
      thread.ref();
      thread.postMessage(message(id), moved);
    });
    if (answer.error !== undefined) throw Object.assign(new Error(answer.error.message), { code: answer.error.code });
    return answer;
  }

  return {
    hash: async (path, at, length) => (await ask((id) => ({ id, verb: "read", path, at, length, withBytes: false }))).sha256,
    async read(path, at, length) {
      const { sha256, bytes } = await ask((id) => ({ id, verb: "read", path, at, length, withBytes: true }));
      if (sha256 === undefined) return undefined;
      return { sha256, bytes: Buffer.from((bytes ?? fail("INTERNAL", "a chunk arrived without its bytes")).buffer) };
    },
    async place(locations, bytes, sha256) {
      // A small buffer is a slice of a shared pool, which must not be transferred, so it is copied.
      const own = bytes.byteLength === bytes.buffer.byteLength && bytes.buffer instanceof ArrayBuffer ? bytes.buffer : new Uint8Array(bytes).buffer;
      return (await ask((id) => ({ id, verb: "place", locations, bytes: new Uint8Array(own), sha256 }), [own])).sha256 !== undefined;
    },
    async close() {
      clearTimeout(idle);
      const ending = worker;
      worker = undefined;
      await ending?.terminate();
    },
  };
}
