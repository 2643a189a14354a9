// What a checkpoint that is transferred is: its files as chunks, what it stands on, and what it needs of a node, sealed by a code of its deployment.
import { createHash, createHmac } from "node:crypto";
import { fail } from "@svc/contract/failures.ts";
import { sameSecret } from "@svc/kit/secret.ts";
import { z } from "zod";
import { processorShape } from "../runtime/cpu.ts";
import { runtimeNames } from "../runtime/runtime.ts";
import { CHUNK_BYTES } from "./chunk-thread.ts";

// svc-transfer-1 SHA256 HMAC    of all that follows this line; the second with a key that a deployment's nodes share
// {"kind":"snapshot",…}

const MARK = "svc-transfer-1";
/** A few tens of thousand chunks, and so some hundred GiB that are not zero. */
export const MAX_MANIFEST_BYTES = 4 * 2 ** 20;
const MAX_FILES = 1000;
const MAX_LAYERS = 200;
/** Sparse files look far larger than they are. */
const MAX_FILE_BYTES = 2 ** 43;
const HEAD = /^svc-transfer-1 ([0-9a-f]{64}) ([0-9a-f]{64})$/;

const sha256 = z.string().regex(/^[0-9a-f]{64}$/, "expected a SHA-256 in hex");

/** `chunks`: names in order; a number stands for so many chunks of zeros. */
export const fileShape = z
  .object({
    name: z.string().regex(/^[A-Za-z0-9][\w.-]{0,99}$/, "a file's name is letters, digits, -, _ and ."),
    sizeBytes: z.number().int().min(0).max(MAX_FILE_BYTES),
    chunks: z.array(
      z.union([
        sha256,
        z
          .number()
          .int()
          .min(1)
          .max(MAX_FILE_BYTES / CHUNK_BYTES),
      ]),
    ),
  })
  .refine(
    ({ sizeBytes, chunks }) => chunks.reduce<number>((sum, each) => sum + (typeof each === "number" ? each : 1), 0) === Math.ceil(sizeBytes / CHUNK_BYTES),
    "its chunks do not add up to its size",
  );
export type TransferFile = z.output<typeof fileShape>;

const text = (most: number) => z.string().max(most);
const count = z.number().int().min(0);
const limits = z.object({ cpuCount: z.number().positive(), memoryMB: count, diskSizeMB: count, pids: count });

export const imageShape = z.object({
  /** Of set-up's making: `content` names what is in its files. `packed`: they transfer along. */
  base: z.object({ name: text(200), templateID: text(200), recipe: text(200), content: sha256, packed: fileShape.optional() }).optional(),
  /** The lowest first. */
  layers: z.array(z.object({ note: text(2000), packed: fileShape })).max(MAX_LAYERS),
});
export type TransferImage = z.output<typeof imageShape>;

const snapshotShape = z.object({
  snapshotID: z.string().regex(/^snap[0-9a-f]{20}$/),
  sandboxID: text(64),
  templateID: text(200),
  names: z.array(text(300)).max(100),
  user: text(256),
  workdir: text(4096),
  strictFiles: z.boolean().optional(),
  env: z.record(text(256), z.string()),
  createdAtWallMs: z.number(),
  /** The node that took it; absent in files, and where a node of an earlier version wrote it. */
  originNodeID: text(63).optional(),
});
/** Its claim is what its record says, network rules among it; only a node of its own deployment takes it. */
const sandboxShape = z.object({
  sandboxID: z.string().regex(/^i[a-z0-9]{19,62}$/),
  templateID: text(200),
  guestBootID: text(64),
  pausedAtWallMs: z.number(),
  claim: z.looseObject({ egress: z.looseObject({}) }),
});

export const manifestShape = z.object({
  exportedAt: text(64),
  /** The public half of the key that its envd obeys: its memory goes on only on nodes that hold the other half. */
  deployment: text(100),
  runtime: z.enum(runtimeNames),
  kind: z.enum(["memory", "filesystem"]),
  /** The checkpoint's id. */
  captureID: z.string().regex(/^c[0-9a-f]{24}$/),
  /** By content; what its memory was written by. */
  program: text(100).optional(),
  /** The same, to be run on a node that has another version; absent in files without their base, and where an earlier version wrote them. */
  programFile: fileShape.optional(),
  envd: z.object({ name: z.string().regex(/^envd-[0-9a-f]{16}$/), version: text(64), file: fileShape }),
  /** That its memory was taken on. */
  processor: processorShape.optional(),
  limits,
  heldBytes: count,
  image: imageShape,
  files: z
    .array(fileShape)
    .min(1)
    .max(MAX_FILES)
    .refine((files) => new Set(files.map(({ name }) => name)).size === files.length, "two of its files have one name"),
  snapshot: snapshotShape.optional(),
  sandbox: sandboxShape.optional(),
});
export type Manifest = z.output<typeof manifestShape>;

export type Deployment = {
  /** Seals what is written. */
  readonly key: string;
  /** All that what is read may be sealed by: a deployment's secret may have been another one before. */
  readonly keys: () => readonly string[];
  /** Whether a key that envd obeys is held here. */
  readonly isOurs: (publicKeyBase64: string) => boolean;
};

/** `isOwn`: written by a node that has our deployment's key. */
export type ReadManifest = { readonly manifest: Manifest; readonly isOwn: boolean };

export const writeManifest = (manifest: Manifest, key: string): Buffer => writeSealed(manifest, key);

/** @throws PAYLOAD_TOO_LARGE. */
export function writeSealed(value: object, key: string): Buffer {
  const written = sealed(JSON.stringify(value), key);
  if (written.length <= MAX_MANIFEST_BYTES) return written;
  return fail("PAYLOAD_TOO_LARGE", `its manifest takes ${written.length} bytes; the maximum is ${MAX_MANIFEST_BYTES}: it has too many chunks to export`);
}

/** `keys`: by which a manifest may be our own. @throws INVALID_REQUEST for what is none; SNAPSHOT_DAMAGED for one that is not what was written. */
export function readManifest(written: Buffer, { keys, isOurs }: Deployment): ReadManifest {
  const { body, isOwn } = unsealed(written, keys);
  const manifest = parsed(manifestShape, body);
  if (!isOwn && isOurs(manifest.deployment))
    fail("SNAPSHOT_DAMAGED", "its manifest claims to be of this deployment, but its authentication code is wrong: it was changed");
  return { manifest, isOwn };
}

/** A base template's files, kept once for all that stand on them. */
export const writeBase = (file: TransferFile, key: string): Buffer => sealed(JSON.stringify(file), key);

/** Undefined for one that another deployment wrote. */
export function readBase(written: Buffer, { keys }: Deployment): TransferFile | undefined {
  const { body, isOwn } = unsealed(written, keys);
  return isOwn ? fileShape.parse(JSON.parse(body)) : undefined;
}

function sealed(body: string, key: string): Buffer {
  return Buffer.from(`${MARK} ${digestOf(body)} ${codeOf(body, key)}\n${body}\n`);
}

/** One that only nodes of this deployment can have written. @throws SNAPSHOT_UNSUITABLE where another did; INVALID_REQUEST, SNAPSHOT_DAMAGED. */
export function readSealed<T extends z.ZodType>(shape: T, written: Buffer, { keys }: Deployment, where: string): z.output<T> {
  const { body, isOwn } = unsealed(written, keys);
  return isOwn ? parsed(shape, body) : othersSecrets(where);
}

export const othersSecrets = (where: string): never =>
  fail("SNAPSHOT_UNSUITABLE", `${where} was written by a node with other secrets; give all nodes of a deployment the same ones`);

function unsealed(written: Buffer, keys: Deployment["keys"]): { readonly body: string; readonly isOwn: boolean } {
  const end = written.subarray(0, 200).indexOf("\n");
  const [, digest, code] = HEAD.exec(written.toString("latin1", 0, Math.max(0, end))) ?? [];
  if (digest === undefined || code === undefined)
    fail("INVALID_REQUEST", `it does not begin like an exported snapshot (${MARK}); was it written by svc snapshot export?`);
  const body = written.toString("utf8", end + 1).replace(/\n$/, "");
  if (digestOf(body) !== digest) fail("SNAPSHOT_DAMAGED", "its manifest is damaged: its checksum differs");
  return { body, isOwn: keys().some((key) => sameSecret(code, codeOf(body, key))) };
}

function parsed<T extends z.ZodType>(shape: T, body: string): z.output<T> {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    return fail("INVALID_REQUEST", "its manifest is not valid JSON");
  }
  const result = shape.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  return fail("INVALID_REQUEST", `its manifest: ${issue?.path.join(".")}: ${issue?.message}`);
}

const digestOf = (body: string) => createHash("sha256").update(body).digest("hex");
const codeOf = (body: string, key: string) => createHmac("sha256", key).update(body).digest("hex");

/** All that is transferred, each file once. */
export function filesOf({ files, envd, programFile, image }: Manifest): readonly TransferFile[] {
  const program = programFile === undefined ? [] : [programFile];
  return [...files, envd.file, ...program, ...(image.base?.packed === undefined ? [] : [image.base.packed]), ...image.layers.map(({ packed }) => packed)];
}

/** For a collection, of whichever deployment or version it is: too many names keep too much, too few would lose something. */
export function chunkNamesIn(written: Buffer): Iterable<string> {
  if (!written.subarray(0, MARK.length).equals(Buffer.from(MARK)))
    fail("SNAPSHOT_DAMAGED", "a manifest in object storage cannot be read; nothing is collected");
  return written.toString("latin1").match(/\b[0-9a-f]{64}\b/g) ?? [];
}

export type ChunkPlace = { readonly sha256: string; readonly at: number; readonly length: number };

export function* chunksOf({ sizeBytes, chunks }: TransferFile): Generator<ChunkPlace> {
  let at = 0;
  for (const chunk of chunks) {
    if (typeof chunk !== "number") yield { sha256: chunk, at, length: Math.min(CHUNK_BYTES, sizeBytes - at) };
    at += CHUNK_BYTES * (typeof chunk === "number" ? chunk : 1);
  }
}
