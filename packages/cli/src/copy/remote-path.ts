// Paths inside a sandbox, whose names may contain bytes (byte-text.ts).
import { posix } from "node:path";
import type { EnvdClient, RequestOptions } from "@svc/contract/envd.ts";
import { fail } from "@svc/contract/failures.ts";

/** Resolves `~` and relative paths against the user's home. A trailing slash is kept. */
export async function absolute(envd: EnvdClient, path: string, options: RequestOptions): Promise<string> {
  if (path.includes("\0")) fail("INVALID_REQUEST", "a path holds no NUL");
  if (path.startsWith("/")) return posix.normalize(path);
  const home = (await envd.stat("~", options)).path;
  return posix.join(home, path === "~" || path.startsWith("~/") ? `.${path.slice(1)}` : path);
}
