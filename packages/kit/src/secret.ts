// Secrets: compared in one place, derived from a seed, read from their sources in order, generated atomically.
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { closeSync, constants, fstatSync, fsyncSync, linkSync, mkdirSync, openSync, readSync, unlinkSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { fail } from "@svc/contract/failures.ts";

/** A process-local key: both sides are hashed with it, so that neither length nor content shows in the time taken. */
const comparisonKey = randomBytes(32);

/** Constant-time equality; false where either is absent. */
export function sameSecret(given: string | undefined, expected: string | undefined): boolean {
  if (given === undefined || expected === undefined) return false;
  const digest = (text: string) => createHmac("sha256", comparisonKey).update(text, "utf8").digest();
  return timingSafeEqual(digest(given), digest(expected));
}

/** Derives a token (64 hex characters) of one sandbox; nothing but the seed is ever stored. */
export function deriveToken(seed: string, kind: "envd" | "traffic", sandboxID: string): string {
  return createHmac("sha256", seed).update(`${kind}:v1:${sandboxID}`).digest("hex");
}

const MAX_SECRET_FILE_BYTES = 4096;

/**
 * The text of a secret file, one trailing newline (and CR) taken away; undefined where there is no file.
 * @throws SETTING_INVALID when it is no regular file, too large, or cannot be read.
 */
export function readSecretFile(path: string): string | undefined {
  let file: number;
  try {
    // O_NONBLOCK: a FIFO in its place must not hang the start.
    file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT" || (error as NodeJS.ErrnoException).code === "ENOTDIR") return undefined;
    return fail("SETTING_INVALID", `${path}: cannot be read (${(error as Error).message}); mend its rights or remove it`, { cause: error });
  }
  try {
    if (!fstatSync(file).isFile()) fail("SETTING_INVALID", `${path}: is no regular file; a secret must be one`);
    const buffer = Buffer.alloc(MAX_SECRET_FILE_BYTES + 1);
    const length = readSync(file, buffer, 0, buffer.length, 0);
    if (length > MAX_SECRET_FILE_BYTES) fail("SETTING_INVALID", `${path}: is longer than ${MAX_SECRET_FILE_BYTES} bytes; it cannot be a secret`);
    return buffer.toString("utf8", 0, length).replace(/\r?\n$/, "");
  } finally {
    closeSync(file);
  }
}

/**
 * Reads the secret at `path`, or generates it there: atomically, mode 0600 in a directory of 0700.
 * Of two processes that generate at once both return the winner's.
 */
export function readOrGenerateSecretFile(path: string, generate: () => string): { secret: string; generated: boolean } {
  const existing = readSecretFile(path);
  if (existing !== undefined) return { secret: existing, generated: false };
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const secret = generate();
  const temporary = `${path}.${process.pid}.${randomBytes(4).toString("hex")}`;
  const file = openSync(temporary, "wx", 0o600);
  try {
    writeSync(file, `${secret}\n`);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  try {
    // link() fails where the name exists: whoever is second reads what the first wrote, whole.
    linkSync(temporary, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    return { secret: readSecretFile(path) ?? fail("INTERNAL", `${path}: vanished while it was read`), generated: false };
  } finally {
    unlinkSync(temporary);
  }
  const directory = openSync(dirname(path), "r");
  fsyncSync(directory);
  closeSync(directory);
  return { secret, generated: true };
}
