// The files of a backup, in a directory or in object storage: archives in pieces, and a manifest that is written last.
import { createHash } from "node:crypto";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import type { Objects } from "@svc/kit/objects/objects.ts";
import { z } from "zod";
import { type Walked, walkTar } from "./tar-walk.ts";

// manifest                  one line "svc-backup-1 SHA256", then the JSON with that digest; a backup without it is not one
// objects/KEY               a copy of an object of the deployment's object storage
// ARCHIVE/000000, 000001…   a tar stream in pieces of 16 MiB, each with its digest in the manifest

const COPIES = "objects/";
const MANIFEST = "manifest";
const FORMAT = "svc-backup-1";
const PIECE_BYTES = 16 * 2 ** 20;
const PUTS_AT_ONCE = 2;
const GETS_AHEAD = 3;
const MAX_MANIFEST_BYTES = 2 ** 30;
const MAX_NAMED = 5;

const count = z.number().int().min(0);
const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const archiveName = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$/);

export const copiedObject = z.object({ key: z.string(), sizeBytes: count, sha256 });
export type CopiedObject = z.output<typeof copiedObject>;

const archiveShape = z.object({
  name: archiveName,
  sizeBytes: count,
  pieces: z.array(z.object({ sizeBytes: count, sha256 })),
  /** Each entry of the tar stream: path, first byte, byte after the last, digest of these bytes. */
  entries: z.array(z.tuple([z.string(), count, count, sha256])),
});
export type Archive = z.output<typeof archiveShape>;

const manifestShape = z.object({
  version: z.literal(1),
  backupID: z.string(),
  startedAt: z.string(),
  finishedAt: z.string(),
  /** The version of svc and the commit that made it. */
  madeBy: z.string(),
  nodeID: z.string(),
  /** The home that it is of: its records name files by this path. */
  home: z.string(),
  counts: z.record(z.string(), count),
  volumes: z.array(z.object({ volumeID: z.string(), name: z.string() })),
  notInHome: z.array(z.string()),
  archives: z.array(archiveShape),
  /** Object storage that the records name; its objects are in the backup if they were copied. */
  objects: z.object({ url: z.string(), isCopied: z.boolean(), copies: z.array(copiedObject) }).optional(),
});
export type Manifest = z.output<typeof manifestShape>;

const digestOf = (bytes: Buffer | string) => createHash("sha256").update(bytes).digest("hex");
export const copyKey = (key: string) => `${COPIES}${key}`;
const pieceKey = (archive: string, index: number) => `${archive}/${String(index).padStart(6, "0")}`;

/** Reads the manifest. @throws BACKUP_DAMAGED if there is none, or not what was written. */
export async function readManifest(objects: Objects): Promise<Manifest> {
  const found = await objects.get(MANIFEST, MAX_MANIFEST_BYTES);
  if (found === undefined)
    return fail("BACKUP_DAMAGED", `there is no backup in ${objects.url}: expected a file ${MANIFEST}, which a finished \`svc backup create\` writes last`);
  const end = found.indexOf("\n");
  const [format, expected] = found.toString("latin1", 0, Math.max(0, end)).split(" ");
  if (format !== FORMAT)
    fail(
      "BACKUP_DAMAGED",
      `the ${MANIFEST} in ${objects.url} is not of a backup that this version reads: expected ${FORMAT}, got ${JSON.stringify(format?.slice(0, 40))}`,
    );
  const body = found.subarray(end + 1);
  const computed = digestOf(body);
  if (computed !== expected) fail("BACKUP_DAMAGED", `the ${MANIFEST} in ${objects.url} is damaged: its digest is ${computed}, expected ${expected}`);
  return manifestShape.parse(JSON.parse(body.toString("utf8")));
}

export const hasManifest = async (objects: Objects): Promise<boolean> => (await objects.head(MANIFEST)) !== undefined;

/** From here on the backup exists. */
export async function writeManifest(objects: Objects, manifest: Manifest): Promise<number> {
  const body = Buffer.from(JSON.stringify(manifest));
  const whole = Buffer.concat([Buffer.from(`${FORMAT} ${digestOf(body)}\n`), body]);
  await objects.put(MANIFEST, whole);
  return whole.length;
}

/** Stores a tar stream in pieces as it comes. */
export async function storeArchive(objects: Objects, name: string, stream: AsyncIterable<Buffer>): Promise<Archive> {
  const entries: Archive["entries"] = [];
  const pieces: { sizeBytes: number; sha256: string }[] = [];
  const walk = walkTar(({ path, from, to, sha256: digest }: Walked) => void entries.push([path, from, to, digest]));
  const putting = new Set<Promise<void>>();
  let gathered: Buffer[] = [];
  let gatheredBytes = 0;
  let sizeBytes = 0;

  async function put(): Promise<void> {
    const body = Buffer.concat(gathered);
    gathered = [];
    gatheredBytes = 0;
    const digest = digestOf(body);
    const key = pieceKey(name, pieces.length);
    pieces.push({ sizeBytes: body.length, sha256: digest });
    sizeBytes += body.length;
    const work = objects.put(key, body, digest).finally(() => putting.delete(work));
    // The failure is thrown by the race below, or by the last wait.
    work.catch(() => undefined);
    putting.add(work);
    if (putting.size >= PUTS_AT_ONCE) await Promise.race(putting);
  }

  try {
    for await (const chunk of stream) {
      for (let at = 0; at < chunk.length; ) {
        const part = chunk.subarray(at, at + PIECE_BYTES - gatheredBytes);
        walk.write(part);
        gathered.push(part);
        gatheredBytes += part.length;
        at += part.length;
        if (gatheredBytes === PIECE_BYTES) await put();
      }
    }
    if (gatheredBytes > 0) await put();
    await Promise.all(putting);
  } finally {
    // After a failure nothing may be put behind the caller's clean-up.
    await Promise.allSettled(putting);
  }
  walk.end();
  return { name, sizeBytes, pieces, entries };
}

/** Returns the verified bytes in order. @throws BACKUP_DAMAGED that names the file of the backup and what it holds. */
export async function* readArchive(objects: Objects, archive: Archive): AsyncGenerator<Buffer> {
  // Failures are values here: one of a piece that is read ahead must not be unhandled.
  const ahead: Promise<Buffer | Failure>[] = [];
  const ask = (index: number) => readPiece(objects, archive, index).catch(asFailure);
  for (let index = 0; index < archive.pieces.length; index++) {
    while (ahead.length < GETS_AHEAD && index + ahead.length < archive.pieces.length) ahead.push(ask(index + ahead.length));
    const found = await (ahead.shift() ?? ask(index));
    if (found instanceof Failure) throw found;
    yield found;
  }
}

async function readPiece(objects: Objects, archive: Archive, index: number): Promise<Buffer> {
  const key = pieceKey(archive.name, index);
  const piece = archive.pieces[index] ?? fail("INTERNAL", `${archive.name} has no piece ${index}`);
  const damaged = (what: string) => fail("BACKUP_DAMAGED", `file ${key} of the backup ${what}; it holds ${heldBy(archive, index)}`);
  const body = await objects.get(key, piece.sizeBytes).catch((error: unknown) => {
    if (error instanceof Failure && error.name === "PAYLOAD_TOO_LARGE") return damaged(`is damaged: it is longer than ${piece.sizeBytes} bytes`);
    throw error;
  });
  if (body === undefined) return damaged("is missing");
  const computed = digestOf(body);
  return computed === piece.sha256 ? body : damaged(`is damaged: its digest is ${computed}, expected ${piece.sha256}`);
}

/** Names the entries that lie in a piece, for people. */
function heldBy({ entries }: Archive, index: number): string {
  const [from, to] = [index * PIECE_BYTES, (index + 1) * PIECE_BYTES];
  const held = entries.filter((entry) => entry[1] < to && entry[2] > from && !entry[0].endsWith("/")).map(([path]) => path.replace(/^\.\//, ""));
  if (held.length === 0) return "no file's content";
  const named = held.slice(0, MAX_NAMED).join(", ");
  return held.length > MAX_NAMED ? `${named} and ${held.length - MAX_NAMED} more` : named;
}

/** Reads every file of the backup; returns what is wrong with each, and how many files of the home were checked. */
export async function verifyArchives(
  objects: Objects,
  { archives, objects: stored }: Manifest,
): Promise<{ readonly faults: string[]; readonly entries: number }> {
  const faults: string[] = [];
  let checked = 0;
  for (const archive of archives) {
    let at = 0;
    let isWhole = true;
    const walk = walkTar(({ path, sha256: digest }) => {
      const expected = archive.entries[at++];
      if (expected?.[0] !== path || expected[3] !== digest)
        faults.push(`${path} in ${archive.name} is not what was written: its digest is ${digest}, expected ${expected?.[3]}`);
      else checked++;
    });
    for (let index = 0; index < archive.pieces.length; index++) {
      const body = await readPiece(objects, archive, index).catch((error: unknown) => {
        if (!(error instanceof Failure) || error.name !== "BACKUP_DAMAGED") throw error;
        faults.push(error.message);
        return undefined;
      });
      // Behind a damaged piece the stream cannot be followed; the digests of the pieces say what is intact.
      if (body === undefined) isWhole = false;
      else if (isWhole) walk.write(body);
    }
    if (!isWhole) continue;
    walk.end();
    if (at !== archive.entries.length) faults.push(`${archive.name} has ${at} entries, expected ${archive.entries.length}`);
  }
  for (const object of stored?.copies ?? []) {
    const fault = await readCopy(objects, object).then(
      () => undefined,
      (error: Failure) => (error.name === "BACKUP_DAMAGED" ? error.message : Promise.reject(error)),
    );
    if (fault === undefined) checked++;
    else faults.push(fault);
  }
  return { faults, entries: checked };
}

/** @throws BACKUP_DAMAGED that names the object. */
export async function readCopy(from: Objects, { key, sizeBytes, sha256 }: CopiedObject): Promise<Buffer> {
  const body = await from.get(copyKey(key), sizeBytes).catch((error: Failure) => {
    if (error.name === "PAYLOAD_TOO_LARGE") return Buffer.alloc(0);
    throw error;
  });
  if (body === undefined) return fail("BACKUP_DAMAGED", `file ${COPIES}${key} of the backup is missing`);
  const computed = createHash("sha256").update(body).digest("hex");
  return computed === sha256 ? body : fail("BACKUP_DAMAGED", `file ${COPIES}${key} of the backup is damaged: its digest is ${computed}, expected ${sha256}`);
}

/** Removes the files that an interrupted `create` left. */
export async function removePieces(objects: Objects): Promise<number> {
  let removed = 0;
  const keys: string[] = [];
  for await (const { key } of objects.list("")) if (/^[^/]+\/\d{6}$/.test(key) || key.startsWith(COPIES)) keys.push(key);
  for (const key of keys) {
    await objects.delete(key);
    removed++;
  }
  return removed;
}
