// Helpers of the SSD tests: folders, bytes that are derived from a key, and the files of objects.
import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export function makeFolder(parent = tmpdir()): { readonly path: string } & AsyncDisposable {
  const path = mkdtempSync(join(parent, "svc-ssd-"));
  return {
    path,
    async [Symbol.asyncDispose]() {
      rmSync(path, { recursive: true, force: true });
    },
  };
}

/** Bytes that differ for each key and are not periodic. */
export function bytesOf(key: string, sizeBytes: number): Buffer {
  const bytes = Buffer.alloc(sizeBytes);
  let seed = createHash("sha256").update(key).digest();
  for (let at = 0; at < sizeBytes; at += 4096) {
    seed = createHash("sha256").update(seed).digest();
    for (let inside = at; inside < Math.min(at + 4096, sizeBytes); inside += seed.length) seed.copy(bytes, inside);
  }
  return bytes;
}

/** Returns the names of the objects' files. */
export const filesIn = (folder: string): string[] => readdirSync(folder).filter((name) => /^[0-9a-f]{8}$/.test(name));
