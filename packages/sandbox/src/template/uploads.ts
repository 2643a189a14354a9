// Files of COPY steps: uploaded to a signed URL, and kept for some time under the hash that the client computes.
import { createHmac } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { Failure, fail, isDiskFull } from "@svc/contract/failures.ts";
import type { Durability } from "@svc/kit/database.ts";
import { sameSecret } from "@svc/kit/secret.ts";
import { syncAll } from "@svc/kit/sync.ts";
import type { Database } from "./database.ts";

/** The URL is valid this long, because clients hash and pack the files after they request it. */
const ADDRESS_GOOD_SECONDS = 3600;
const UPLOADS_AT_ONCE = 16;
const hashPattern = /^[0-9a-f]{64}$/;
const TAR_BLOCK_BYTES = 512;

export type StoredFiles = { readonly path: string; readonly sizeBytes: number; readonly packed: "gzip" | "plain" };
export type UploadQuery = { readonly expires?: string | undefined; readonly signature?: string | undefined };

export interface Uploads {
  has(hash: string): boolean;
  /** Returns the path and query for a PUT; only this node can sign one. */
  address(hash: string): string;
  /** @throws ACCESS_DENIED for a URL that is forged or expired. */
  check(hash: string, query: UploadQuery): void;
  /** The files are complete under their name when it returns. @throws INVALID_REQUEST, PAYLOAD_TOO_LARGE, DISK_FULL; nothing is kept then. */
  receive(hash: string, lengthHeader: string | undefined, body: Readable): Promise<void>;
  /** @throws INVALID_REQUEST if the files were collected meanwhile. */
  find(hash: string): Promise<StoredFiles>;
  collect(unusedSinceMs: number, keep: ReadonlySet<string>): Promise<number>;
}

export type UploadsOptions = { readonly maxBytes: number; readonly db: Database; readonly nowMs: () => number; readonly durability: Durability };

export async function openUploads(folder: string, secret: string, { maxBytes, db, nowMs, durability }: UploadsOptions): Promise<Uploads> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  // Removes partial files that a kill left, and files whose row was not written.
  for (const name of await readdir(folder)) if (!hashPattern.test(name) || !known(name)) await rm(join(folder, name), { recursive: true, force: true });
  let receiving = 0;
  let counter = 0;

  function known(hash: string): boolean {
    return db.get("SELECT 1 FROM files WHERE hash = ?", hash) !== undefined;
  }
  const signature = (hash: string, expires: string) => createHmac("sha256", secret).update(`upload:v1:${hash}:${expires}`).digest("hex");
  /** Returns true if the files are here. On a full disk the time of last use is left unchanged. */
  function touch(hash: string): boolean {
    try {
      return db.run("UPDATE files SET used_at = ? WHERE hash = ?", nowMs(), hash) > 0;
    } catch (error) {
      if (!isDiskFull(error)) throw error;
      return known(hash);
    }
  }

  return {
    has: touch,
    address(hash) {
      const expires = String(Math.floor(nowMs() / 1000) + ADDRESS_GOOD_SECONDS);
      return `/templates/uploads/${hash}?${new URLSearchParams({ expires, signature: signature(hash, expires) })}`;
    },
    check(hash, { expires = "", signature: given }) {
      if (!hashPattern.test(hash) || !sameSecret(given, signature(hash, expires)))
        fail("ACCESS_DENIED", "this URL was not issued by this node; request a new one");
      if (Number(expires) * 1000 < nowMs()) fail("ACCESS_DENIED", "this URL was valid for an hour; request a new one");
    },
    async receive(hash, lengthHeader, body) {
      const length = Number(lengthHeader);
      if (lengthHeader === undefined || !Number.isSafeInteger(length) || length < 0) fail("INVALID_REQUEST", "an upload needs an exact Content-Length");
      if (length > maxBytes) fail("PAYLOAD_TOO_LARGE", `the files take ${length} bytes; template.upload_mb allows ${maxBytes}`);
      if (receiving >= UPLOADS_AT_ONCE)
        throw new Failure("TOO_MANY_REQUESTS", `${UPLOADS_AT_ONCE} uploads are in progress, the maximum`, { retryAfterSeconds: 1 });
      receiving++;
      // Two clients may upload the same files at once, so each writes its own file until it is complete.
      const part = join(folder, `${hash}.${process.pid}-${counter++}.part`);
      try {
        await store(body, part, durability);
        const { size } = await stat(part);
        if (size !== length) fail("INVALID_REQUEST", `the upload ended early: ${size} of ${length} bytes arrived`);
        await packingOf(part);
        await rename(part, join(folder, hash));
        if (durability === "disk") await syncAll([folder]);
        db.run(
          "INSERT INTO files VALUES (?, ?, ?) ON CONFLICT (hash) DO UPDATE SET size_bytes = excluded.size_bytes, used_at = excluded.used_at",
          hash,
          size,
          nowMs(),
        );
      } catch (error) {
        await rm(part, { force: true });
        if (!known(hash)) await rm(join(folder, hash), { force: true });
        throw error;
      } finally {
        receiving--;
      }
    },
    async find(hash) {
      const path = join(folder, hash);
      if (!hashPattern.test(hash) || !touch(hash)) fail("INVALID_REQUEST", `files ${hash} are not here; upload them first`);
      return { path, sizeBytes: (await stat(path)).size, packed: await packingOf(path) };
    },
    async collect(unusedSinceMs, keep) {
      let removed = 0;
      for (const row of db.all("SELECT hash FROM files WHERE used_at < ?", unusedSinceMs)) {
        const hash = row["hash"] as string;
        if (keep.has(hash)) continue;
        db.remove("DELETE FROM files WHERE hash = ?", hash);
        await rm(join(folder, hash), { force: true });
        removed++;
      }
      return removed;
    },
  };
}

/** The body is kept open on failure, because the client still has to get an answer. */
async function store(body: Readable, path: string, durability: Durability): Promise<void> {
  const file = await open(path, "wx", 0o600);
  try {
    for await (const chunk of body.iterator({ destroyOnReturn: false })) await file.writeFile(chunk as Buffer);
    if (durability === "disk") await file.sync();
  } finally {
    await file.close();
  }
}

/** Reads only the first header. @throws INVALID_REQUEST if it is not a tar archive. */
async function packingOf(path: string): Promise<"gzip" | "plain"> {
  const file = await open(path, "r");
  const head = Buffer.alloc(TAR_BLOCK_BYTES);
  const { bytesRead } = await file.read(head, 0, head.length, 0).finally(() => file.close());
  const zipped = head[0] === 0x1f && head[1] === 0x8b;
  const first = zipped ? await firstUnzipped(path) : head.subarray(0, bytesRead);
  if (!isTarHeader(first)) fail("INVALID_REQUEST", "the upload is not a tar archive, plain or gzipped");
  return zipped ? "gzip" : "plain";
}

async function firstUnzipped(path: string): Promise<Buffer> {
  const gunzip = createGunzip();
  const source = createReadStream(path, { highWaterMark: 4096 });
  source.on("error", (error) => gunzip.destroy(error));
  source.pipe(gunzip);
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of gunzip) {
      chunks.push(chunk as Buffer);
      if (chunks.reduce((sum, each) => sum + each.length, 0) >= TAR_BLOCK_BYTES) break;
    }
  } catch {
    // A body that is not valid gzip leaves too few bytes for a tar header, and the caller refuses it.
  } finally {
    source.destroy();
    gunzip.destroy();
  }
  return Buffer.concat(chunks).subarray(0, TAR_BLOCK_BYTES);
}

/** The checksum of a tar header counts its own field as spaces; an archive without entries begins with an empty block. */
function isTarHeader(block: Buffer): boolean {
  if (block.length < TAR_BLOCK_BYTES) return false;
  if (block.every((byte) => byte === 0)) return true;
  const stated = Number.parseInt(
    block
      .toString("latin1", 148, 156)
      .replace(/[\0 ]+$/, "")
      .trim(),
    8,
  );
  let sum = 8 * 32;
  block.forEach((byte, at) => {
    if (at < 148 || at >= 156) sum += byte;
  });
  return stated === sum;
}
