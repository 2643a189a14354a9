// The manifest of a transferred checkpoint: its files as chunks, what it is based on and what it needs of a node, with the deployment's
// authentication code.
import { createHash, createHmac } from "node:crypto";
import { fail } from "@svc/contract/failures.ts";
import { MAX_VOLUME_MOUNTS } from "@svc/contract/volumes.ts";
import { sameSecret } from "@svc/kit/secret.ts";
import { z } from "zod";
import { processorShape } from "../runtime/cpu.ts";
import { runtimeNames } from "../runtime/runtime.ts";
import { CHUNK_BYTES } from "./chunk-thread.ts";

// svc-transfer-1 SHA256 HMAC    both over all that follows this line; the HMAC uses a key that the nodes of a deployment share
// {"kind":"snapshot",…}

const MARK = "svc-transfer-1";
/** Allows some ten thousand chunk names, which is some hundred GiB of non-zero data. */
export const MAX_MANIFEST_BYTES = 4 * 2 ** 20;
const MAX_FILES = 1000;
const MAX_LAYERS = 200;
/** The bound is high because sparse files look far larger than they are. */
const MAX_FILE_BYTES = 2 ** 43;
const HEAD = /^svc-transfer-1 ([0-9a-f]{64}) ([0-9a-f]{64})$/;

const sha256 = z.string().regex(/^[0-9a-f]{64}$/, "expected a SHA-256 in hex");

/** `chunks` has the names in order; a number stands for that many chunks of zeros. */
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
  /** A setup template; `content` identifies the content of its files, `packed` is given if they are transferred too. */
  base: z.object({ name: text(200), templateID: text(200), recipe: text(200), content: sha256, packed: fileShape.optional() }).optional(),
  /** The layers, lowest first. */
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
  volumes: z
    .array(z.object({ volumeID: text(64), name: text(128), path: text(1024) }))
    .max(MAX_VOLUME_MOUNTS)
    .optional(),
  createdAtWallMs: z.number(),
  /** The tenant that it belongs to; ignored in files. */
  tenant: text(64).optional(),
  /** The node that took it; absent in files, and in manifests of an earlier version. */
  originNodeID: text(63).optional(),
});
/** The claim is the sandbox's record including network rules, so only nodes of its own deployment accept it. */
const sandboxShape = z.object({
  sandboxID: z.string().regex(/^i[a-z0-9]{19,62}$/),
  templateID: text(200),
  guestBootID: text(64),
  pausedAtWallMs: z.number(),
  claim: z.looseObject({ egress: z.looseObject({}) }),
});

export const manifestShape = z.object({
  exportedAt: text(64),
  /** The public key that its envd accepts: its memory can only be resumed on nodes that have the private key. */
  deployment: text(100),
  runtime: z.enum(runtimeNames),
  kind: z.enum(["memory", "filesystem"]),
  /** The checkpoint's id. */
  captureID: z.string().regex(/^c[0-9a-f]{24}$/),
  /** The program that wrote the memory, named by its content. */
  program: text(100).optional(),
  /** The program itself, for nodes with another version; absent in files without their base, and in manifests of an earlier version. */
  programFile: fileShape.optional(),
  envd: z.object({ name: z.string().regex(/^envd-[0-9a-f]{16}$/), version: text(64), file: fileShape }),
  /** The processor on which the memory was written. */
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
  /** The key that seals written manifests. */
  readonly key: string;
  /** All keys that may have sealed a manifest, since the deployment's secret may have changed. */
  readonly keys: () => readonly string[];
  /** Returns true if this node has the private half of a key that envd accepts. */
  readonly isOurs: (publicKeyBase64: string) => boolean;
};

/** `isOwn` means that a node with our deployment's key wrote it. */
export type ReadManifest = { readonly manifest: Manifest; readonly isOwn: boolean };

export const writeManifest = (manifest: Manifest, key: string): Buffer => writeSealed(manifest, key);

/** @throws PAYLOAD_TOO_LARGE. */
export function writeSealed(value: object, key: string): Buffer {
  const written = sealed(JSON.stringify(value), key);
  if (written.length <= MAX_MANIFEST_BYTES) return written;
  return fail("PAYLOAD_TOO_LARGE", `its manifest takes ${written.length} bytes; the maximum is ${MAX_MANIFEST_BYTES}: it has too many chunks to export`);
}

/** A manifest sealed with one of `keys` is our own. @throws INVALID_REQUEST for another format; SNAPSHOT_DAMAGED for a modified manifest. */
export function readManifest(written: Buffer, { keys, isOurs }: Deployment): ReadManifest {
  const { body, isOwn } = unsealed(written, keys);
  const manifest = parsed(manifestShape, body);
  if (!isOwn && isOurs(manifest.deployment))
    fail("SNAPSHOT_DAMAGED", "its manifest claims to be of this deployment, but its authentication code is wrong: it was changed");
  return { manifest, isOwn };
}

/** Serializes a base template's files, which are stored once for all checkpoints based on them. */
export const writeBase = (file: TransferFile, key: string): Buffer => sealed(JSON.stringify(file), key);

/** Returns undefined if another deployment wrote it. */
export function readBase(written: Buffer, { keys }: Deployment): TransferFile | undefined {
  const { body, isOwn } = unsealed(written, keys);
  return isOwn ? fileShape.parse(JSON.parse(body)) : undefined;
}

function sealed(body: string, key: string): Buffer {
  return Buffer.from(`${MARK} ${digestOf(body)} ${codeOf(body, key)}\n${body}\n`);
}

/**
 * Reads data that only nodes of this deployment can have written. @throws SNAPSHOT_UNSUITABLE if another one did; INVALID_REQUEST, SNAPSHOT_DAMAGED.
 */
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

/** Returns all transferred files, each once. */
export function filesOf({ files, envd, programFile, image }: Manifest): readonly TransferFile[] {
  const program = programFile === undefined ? [] : [programFile];
  return [...files, envd.file, ...program, ...(image.base?.packed === undefined ? [] : [image.base.packed]), ...image.layers.map(({ packed }) => packed)];
}

/** Finds chunk names for a collection, in manifests of any deployment or version: a false name only keeps a chunk, a missed one would lose data. */
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
