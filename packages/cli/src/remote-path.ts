// Paths inside a sandbox, whose names may hold bytes (byte-text.ts).
import { posix } from "node:path";
import type { EnvdClient, RequestOptions } from "@svc/contract/envd.ts";
import { fail } from "@svc/contract/failures.ts";

/** `~` and relative paths are below the user's home. A slash at the end stays. */
export async function absolute(envd: EnvdClient, path: string, options: RequestOptions): Promise<string> {
  if (path.includes("\0")) fail("INVALID_REQUEST", "a path holds no NUL");
  if (path.startsWith("/")) return posix.normalize(path);
  const home = (await envd.stat("~", options)).path;
  return posix.join(home, path === "~" || path.startsWith("~/") ? `.${path.slice(1)}` : path);
}
