// The thread that reads, hashes, verifies and writes chunks of files, so that requests to sandboxes never wait for a hash.
import { createHash } from "node:crypto";
import { closeSync, openSync, readSync, writeSync } from "node:fs";
import { parentPort } from "node:worker_threads";

export type ToChunks =
  | { readonly id: number; readonly verb: "read"; readonly path: string; readonly at: number; readonly length: number; readonly withBytes: boolean }
  | { readonly id: number; readonly verb: "place"; readonly locations: readonly Location[]; readonly bytes: Uint8Array; readonly sha256: string };
export type Location = { readonly path: string; readonly at: number };

/**
 * A read's `sha256` is undefined for zeros only; a placing's is undefined if the hash differs from the expected one, and then nothing was written.
 */
export type FromChunks = {
  readonly id: number;
  readonly sha256?: string;
  readonly bytes?: Uint8Array;
  readonly error?: { readonly code?: string; readonly message: string };
};

/** Zeros of this size within a chunk become holes, so that a file takes no more disk than its source. */
const HOLE_BYTES = 64 * 1024;
const zeros = Buffer.alloc(HOLE_BYTES);

function isZero(bytes: Uint8Array): boolean {
  for (let at = 0; at < bytes.length; at += HOLE_BYTES) {
    const piece = bytes.subarray(at, at + HOLE_BYTES);
    if (zeros.compare(piece, 0, piece.length, 0, piece.length) !== 0) return false;
  }
  return true;
}

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

function read({ path, at, length, withBytes }: ToChunks & { verb: "read" }): Omit<FromChunks, "id"> {
  const bytes = new Uint8Array(length);
  const file = openSync(path, "r");
  try {
    for (let done = 0; done < length; ) {
      const count = readSync(file, bytes, done, length - done, at + done);
      if (count === 0) throw new Error(`${path} became shorter: ${at + done} bytes`);
      done += count;
    }
  } finally {
    closeSync(file);
  }
  if (isZero(bytes)) return {};
  return withBytes ? { sha256: sha256(bytes), bytes } : { sha256: sha256(bytes) };
}

function place({ locations, bytes, sha256: expected }: ToChunks & { verb: "place" }): Omit<FromChunks, "id"> {
  if (sha256(bytes) !== expected) return {};
  for (const { path, at } of locations) {
    const file = openSync(path, "r+");
    try {
      for (let done = 0; done < bytes.length; done += HOLE_BYTES) {
        const piece = bytes.subarray(done, done + HOLE_BYTES);
        if (!isZero(piece))
          for (let written = 0; written < piece.length; ) written += writeSync(file, piece, written, piece.length - written, at + done + written);
      }
    } finally {
      closeSync(file);
    }
  }
  return { sha256: expected };
}

parentPort?.on("message", (message: ToChunks) => {
  let answer: FromChunks;
  try {
    answer = { id: message.id, ...(message.verb === "read" ? read(message) : place(message)) };
  } catch (error) {
    const { code, message: text } = error as NodeJS.ErrnoException;
    answer = { id: message.id, error: { ...(code === undefined ? {} : { code }), message: text } };
  }
  parentPort?.postMessage(answer, answer.bytes === undefined ? [] : [answer.bytes.buffer as ArrayBuffer]);
});
