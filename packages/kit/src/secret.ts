// Secrets: compared in one place, derived from a seed, read from their sources in order, generated atomically.
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { closeSync, constants, fstatSync, fsyncSync, linkSync, mkdirSync, openSync, readSync, renameSync, statSync, unlinkSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { fail } from "@svc/contract/failures.ts";

/** A process-local key: both sides are hashed with it, so that neither length nor content shows in the time taken. */
const comparisonKey = randomBytes(32);

/** Constant-time equality; false where either is absent. */
export function sameSecret(given: string | undefined, expected: string | undefined): boolean {
  if (given === undefined || expected === undefined) return false;
  // Nearly always the deployment's key, which no request changes.
  if (expected !== lastExpected.secret) lastExpected = { secret: expected, digest: digestOf(expected) };
  return timingSafeEqual(digestOf(given), lastExpected.digest);
}

const digestOf = (text: string) => createHmac("sha256", comparisonKey).update(text, "utf8").digest();
let lastExpected = { secret: "", digest: digestOf("") };

/** Values by their secrets, looked up by keyed hash: the time of a look-up depends neither on the secrets nor on how many there are. */
export class SecretMap<T> {
  readonly #values = new Map<string, T>();

  get size(): number {
    return this.#values.size;
  }

  /** False where the secret has a value already. */
  add(secret: string, value: T): boolean {
    const digest = digestOf(secret).toString("latin1");
    if (this.#values.has(digest)) return false;
    this.#values.set(digest, value);
    return true;
  }

  get(given: string | undefined): T | undefined {
    return given === undefined ? undefined : this.#values.get(digestOf(given).toString("latin1"));
  }
}

/** Derives a token (64 hex characters) of one sandbox; nothing but the seed is ever stored. */
export function deriveToken(seed: string, kind: "envd" | "traffic", sandboxID: string): string {
  // I5
  return createHmac("sha256", seed).update(`${kind}:v1:${sandboxID}`).digest("hex");
}

/** Tells two secrets apart, and nothing else about them. */
export function fingerprintOf(secret: string, purpose: string): string {
  return createHmac("sha256", secret).update(`svc:fingerprint:${purpose}:v1`).digest("hex").slice(0, 16);
}

/** What a gateway marks its requests to nodes with. */
export function gatewayToken(apiKey: string): string {
  return createHmac("sha256", apiKey).update("gateway:v1").digest("hex").slice(0, 32);
}

const MAX_SECRET_FILE_BYTES = 4096;

/**
 * The text of a secret file, one trailing newline (and CR) taken away; undefined where there is no file.
 * @throws SETTING_INVALID when it is no regular file, too large, or cannot be read.
 */
export function readSecretFile(path: string, maxBytes = MAX_SECRET_FILE_BYTES): string | undefined {
  let file: number;
  try {
    // O_NONBLOCK: a FIFO in its place must not hang the start.
    file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT" || (error as NodeJS.ErrnoException).code === "ENOTDIR") return undefined;
    return fail("SETTING_INVALID", `${path}: cannot be read (${(error as Error).message}); correct its permissions or remove it`, { cause: error });
  }
  try {
    if (!fstatSync(file).isFile()) fail("SETTING_INVALID", `${path}: is not a regular file; a secret must be one`);
    const buffer = Buffer.alloc(maxBytes + 1);
    const length = readSync(file, buffer, 0, buffer.length, 0);
    if (length > maxBytes) fail("SETTING_INVALID", `${path}: is longer than ${maxBytes} bytes, the maximum for a secret`);
    return buffer.toString("utf8", 0, length).replace(/\r?\n$/, "");
  } finally {
    closeSync(file);
  }
}

/** Whether users beside the file's owner can read it; false where there is none. */
export const isReadByOthers = (path: string): boolean => ((statSync(path, { throwIfNoEntry: false })?.mode ?? 0) & 0o044) !== 0;

/** Writes a secret over the one at `path`, atomically; mode 0600. */
export function replaceSecretFile(path: string, secret: string): void {
  const temporary = writeBeside(path, secret);
  renameSync(temporary, path);
  syncFolder(path);
}

function writeBeside(path: string, secret: string): string {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const temporary = `${path}.${process.pid}.${randomBytes(4).toString("hex")}`;
  const file = openSync(temporary, "wx", 0o600);
  try {
    writeSync(file, `${secret}\n`);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  return temporary;
}

function syncFolder(path: string): void {
  const directory = openSync(dirname(path), "r");
  fsyncSync(directory);
  closeSync(directory);
}

/**
 * Reads the secret at `path`, or generates it there: atomically, mode 0600 in a directory of 0700.
 * Of two processes that generate at once both return the winner's.
 */
export function readOrGenerateSecretFile(path: string, generate: () => string): { secret: string; generated: boolean } {
  const existing = readSecretFile(path);
  if (existing !== undefined) return { secret: existing, generated: false };
  const secret = generate();
  const temporary = writeBeside(path, secret);
  try {
    // link() fails where the name exists: whoever is second reads what the first wrote, whole.
    linkSync(temporary, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    return { secret: readSecretFile(path) ?? fail("INTERNAL", `${path}: vanished while it was read`), generated: false };
  } finally {
    unlinkSync(temporary);
  }
  syncFolder(path);
  return { secret, generated: true };
}
