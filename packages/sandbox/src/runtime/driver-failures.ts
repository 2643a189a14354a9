// Explains why a start or a checkpoint failed, with the output of the program that failed; a full disk is named as such.
import { readdir, stat, statfs } from "node:fs/promises";
import { dirname, join } from "node:path";
import { asFailure, diskFull, Failure, isDiskFull } from "@svc/contract/failures.ts";

const NO_WORDS = "it said nothing";
/** Less than any start needs. */
const NO_ROOM_BYTES = 1024 * 1024;

/**
 * Says whether a full disk explains a failure. A program that finds the disk full may be unable to write its error; a start needs some space,
 * and a restore as much again as its checkpoint.
 */
export async function hadNoRoom(cause: unknown, directory: string, from: string | undefined): Promise<boolean> {
  const { bavail, bsize } = await statfs(dirname(directory));
  if (bavail * bsize < NO_ROOM_BYTES) return true;
  if (!wordsOf(cause).endsWith(NO_WORDS)) return false;
  const files = from === undefined ? [] : await readdir(from).catch(() => []);
  const sizes = await Promise.all(files.map(async (name) => ((await stat(join(from ?? "", name)).catch(() => undefined))?.blocks ?? 0) * 512));
  return bavail * bsize < NO_ROOM_BYTES + sizes.reduce((sum, size) => sum + size, 0);
}

const wordsOfFull = (error: unknown) => (error instanceof Failure && error.name === "DISK_FULL" ? error : diskFull(error)).message;
const wordsOf = (error: unknown) => (error instanceof Error ? error.message : String(error));

export function checkpointFailure(runtimeID: string, error: unknown): Failure {
  const failure = asFailure(error);
  if (isDiskFull(error)) return new Failure("DISK_FULL", `sandbox ${runtimeID} got no checkpoint: ${wordsOfFull(error)}`, { cause: error });
  return failure.name === "INTERNAL"
    ? new Failure("CHECKPOINT_FAILED", `sandbox ${runtimeID} got no checkpoint: ${failure.message}`, { cause: error })
    : failure;
}

export function startFailure(runtimeID: string, error: unknown): Failure {
  const failure = asFailure(error);
  if (isDiskFull(error)) return new Failure("DISK_FULL", `sandbox ${runtimeID} was not started: ${wordsOfFull(error)}`, { cause: error });
  if (failure.name === "HOST_UNSUITABLE" || failure.name === "SANDBOX_START_FAILED" || failure.name === "TIMED_OUT") return failure;
  return new Failure("SANDBOX_START_FAILED", `sandbox ${runtimeID} was not started: ${failure.message}`, { cause: error });
}

/** Returns the end of a program's output, for a message; a Go stack trace, which only its authors understand, is cut off. */
export function lastWords(text: string): string {
  const [words = ""] = text.split(/\ngoroutine \d+ \[/);
  return words.trim().split("\n").slice(-3).join(" ").slice(-600) || NO_WORDS;
}
