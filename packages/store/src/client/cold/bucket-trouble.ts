// What goes wrong with a bucket, as disks name it.
import { Failure } from "@svc/contract/failures.ts";

/** `code`: one that `troubleOf` knows. */
export const trouble = (code: string, message: string): Error => Object.assign(new Error(message), { code });

/** As `troubleOf` knows it. */
export function asTrouble(error: unknown): Error {
  if (!(error instanceof Failure)) return error as Error;
  if (error.name === "DISK_FULL") return trouble("ENOSPC", error.message);
  // An object of another size than was written there.
  if (error.name === "PAYLOAD_TOO_LARGE") return trouble("EBADMSG", error.message);
  return error.name === "TOO_MANY_REQUESTS" ? error : trouble("EIO", error.message);
}
