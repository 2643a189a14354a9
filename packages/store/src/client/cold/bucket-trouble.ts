// Maps failures of a bucket to the error codes of disks.
import { Failure } from "@svc/contract/failures.ts";

/** `code` is one that `troubleOf` knows. */
export const trouble = (code: string, message: string): Error => Object.assign(new Error(message), { code });

/** Translates a failure into an error that `troubleOf` knows. */
export function asTrouble(error: unknown): Error {
  if (!(error instanceof Failure)) return error as Error;
  if (error.name === "DISK_FULL") return trouble("ENOSPC", error.message);
  // The object there has another size than the one that was written.
  if (error.name === "PAYLOAD_TOO_LARGE") return trouble("EBADMSG", error.message);
  return error.name === "TOO_MANY_REQUESTS" ? error : trouble("EIO", error.message);
}
