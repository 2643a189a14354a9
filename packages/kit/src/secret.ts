// Secrets: comparing them in constant time, deriving them from a seed, reading them from files, generating them atomically.
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { closeSync, constants, fstatSync, fsyncSync, linkSync, mkdirSync, openSync, readSync, renameSync, statSync, unlinkSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { fail } from "@svc/contract/failures.ts";

/** A process-local key. Both sides of a comparison are hashed with it, so that the time taken reveals neither length nor content. */
const comparisonKey = randomBytes(32);

/** Constant-time equality; false where either is absent. */
export function sameSecret(given: string | undefined, expected: string | undefined): boolean {
  if (given === undefined || expected === undefined) return false;
  // The expected secret is nearly always the deployment's key, so we keep its digest.
  if (expected !== lastExpected.secret) lastExpected = { secret: expected, digest: digestOf(expected) };
  return timingSafeEqual(digestOf(given), lastExpected.digest);
}

const digestOf = (text: string) => createHmac("sha256", comparisonKey).update(text, "utf8").digest();
let lastExpected = { secret: "", digest: digestOf("") };

/** A map with secrets as keys, looked up by keyed hash: the time of a lookup depends neither on the secrets nor on their number. */
export class SecretMap<T> {
  readonly #values = new Map<string, T>();

  get size(): number {
    return this.#values.size;
  }

  /** Returns false if the secret already has a value. */
  add(secret: string, value: T): boolean {
    const digest = digestOf(secret).toString("latin1");
    if (this.#values.has(digest)) return false;
    this.#values.set(digest, value);
    return true;
  }

  get(given: string | undefined): T | undefined {
    return given === undefined ? undefined : this.#values.get(digestOf(given).toString("latin1"));
  }

  delete(secret: string): void {
    this.#values.delete(digestOf(secret).toString("latin1"));
  }
}

/** Derives a token (64 hex characters) of one sandbox, so that only the seed has to be stored. */
export function deriveToken(seed: string, kind: "envd" | "traffic", sandboxID: string): string {
  // I5
  return createHmac("sha256", seed).update(`${kind}:v1:${sandboxID}`).digest("hex");
}

/** Derives the token of a volume's content; every node with the seed derives the same. */
export function volumeToken(seed: string, volumeID: string): string {
  return createHmac("sha256", seed).update(`volume:v1:${volumeID}`).digest("hex");
}

/** Identifies a secret, so that two can be told apart, and reveals nothing else about it. */
export function fingerprintOf(secret: string, purpose: string): string {
  return createHmac("sha256", secret).update(`svc:fingerprint:${purpose}:v1`).digest("hex").slice(0, 16);
}

/** The mark that a gateway adds to its requests to nodes. */
export function gatewayToken(apiKey: string): string {
  return createHmac("sha256", apiKey).update("gateway:v1").digest("hex").slice(0, 32);
}

const MAX_SECRET_FILE_BYTES = 4096;

/**
 * Returns the text of a secret file without one trailing newline (and CR), or undefined if the file does not exist.
 * @throws SETTING_INVALID if it is not a regular file, too large, or unreadable.
 */
export function readSecretFile(path: string, maxBytes = MAX_SECRET_FILE_BYTES): string | undefined {
  let file: number;
  try {
    // O_NONBLOCK prevents a FIFO at this path from blocking the start.
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

/** Returns whether users other than the owner can read the file; false if it does not exist. */
export const isReadByOthers = (path: string): boolean => ((statSync(path, { throwIfNoEntry: false })?.mode ?? 0) & 0o044) !== 0;

/** Replaces the secret at `path` atomically, with mode 0600. */
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
 * Reads the secret at `path`, or generates it there atomically, with mode 0600 in a directory of mode 0700. If two processes generate it at
 * once, both return the winner's secret.
 */
export function readOrGenerateSecretFile(path: string, generate: () => string): { secret: string; generated: boolean } {
  const existing = readSecretFile(path);
  if (existing !== undefined) return { secret: existing, generated: false };
  const secret = generate();
  const temporary = writeBeside(path, secret);
  try {
    // link() fails if the name exists; the loser then reads the winner's complete file.
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
