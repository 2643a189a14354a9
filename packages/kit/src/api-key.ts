// The deployment's API key for a process that receives it: read from the environment, otherwise from the path where an orchestrator mounts
// it.
import { fail } from "@svc/contract/failures.ts";
import { readSecretFile } from "./secret.ts";

/** RFC 3986 calls these characters unreserved: a key needs no escaping in a URL or a header. */
const apiKeyForm = /^[A-Za-z0-9._~-]{32,256}$/;

export const MOUNTED_KEY_PATH = "/run/secrets/api-key";

export type Sourced = { readonly secret: string; readonly source: string; readonly generated: boolean };

export type SuppliedSources = {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The path is an argument so that tests need not write to /run. */
  readonly mountedKeyPath?: string;
};

/** Reads SVC_API_KEY, then /run/secrets/api-key. Returns undefined if neither holds a key. @throws SETTING_INVALID. */
export function suppliedApiKey({ env, mountedKeyPath = MOUNTED_KEY_PATH }: SuppliedSources): Sourced | undefined {
  const fromEnv = env["SVC_API_KEY"];
  if (fromEnv !== undefined && fromEnv !== "") return checkedApiKey(fromEnv, "SVC_API_KEY");
  const mounted = readSecretFile(mountedKeyPath);
  return mounted === undefined ? undefined : checkedApiKey(mounted, mountedKeyPath);
}

/** @throws SETTING_INVALID. */
export function checkedApiKey(secret: string, source: string): Sourced {
  if (!apiKeyForm.test(secret)) {
    fail("SETTING_INVALID", `the API key from ${source} has ${secret.length} characters; expected 32 to 256 of A-Z a-z 0-9 . _ ~ -`);
  }
  return { secret, source, generated: false };
}
