// Explains why a start or a checkpoint failed, with the output of the program that failed; a full disk is named as such.
import { readdir, stat, statfs } from "node:fs/promises";
import { dirname, join } from "node:path";
import { asFailure, diskFull, Failure, isDiskFull } from "@svc/contract/failures.ts";

const NO_OUTPUT = "it said nothing";
/** Less than any start needs. */
const FULL_DISK_BYTES = 1024 * 1024;

/**
 * Says whether a full disk explains a failure. A program that finds the disk full may be unable to write its error; a start needs some space,
 * and a restore as much again as its checkpoint.
 */
export async function wasDiskFull(cause: unknown, directory: string, from: string | undefined): Promise<boolean> {
  const { bavail, bsize } = await statfs(dirname(directory));
  if (bavail * bsize < FULL_DISK_BYTES) return true;
  if (!messageOf(cause).endsWith(NO_OUTPUT)) return false;
  const files = from === undefined ? [] : await readdir(from).catch(() => []);
  const sizes = await Promise.all(files.map(async (name) => ((await stat(join(from ?? "", name)).catch(() => undefined))?.blocks ?? 0) * 512));
  return bavail * bsize < FULL_DISK_BYTES + sizes.reduce((sum, size) => sum + size, 0);
}

const fullDiskMessage = (error: unknown) => (error instanceof Failure && error.name === "DISK_FULL" ? error : diskFull(error)).message;
const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));

export function checkpointFailure(runtimeID: string, error: unknown): Failure {
  const failure = asFailure(error);
  if (isDiskFull(error)) return new Failure("DISK_FULL", `sandbox ${runtimeID} got no checkpoint: ${fullDiskMessage(error)}`, { cause: error });
  return failure.name === "INTERNAL"
    ? new Failure("CHECKPOINT_FAILED", `sandbox ${runtimeID} got no checkpoint: ${failure.message}`, { cause: error })
    : failure;
}

export function startFailure(runtimeID: string, error: unknown): Failure {
  const failure = asFailure(error);
  if (isDiskFull(error)) return new Failure("DISK_FULL", `sandbox ${runtimeID} was not started: ${fullDiskMessage(error)}`, { cause: error });
  if (failure.name === "HOST_UNSUITABLE" || failure.name === "SANDBOX_START_FAILED" || failure.name === "TIMED_OUT") return failure;
  return new Failure("SANDBOX_START_FAILED", `sandbox ${runtimeID} was not started: ${failure.message}`, { cause: error });
}

/** Returns the end of a program's output, for a message; a Go stack trace, which only its authors understand, is cut off. */
export function endOfOutput(text: string): string {
  const [output = ""] = text.split(/\ngoroutine \d+ \[/);
  return output.trim().split("\n").slice(-3).join(" ").slice(-600) || NO_OUTPUT;
}
