// The deployment's API key: from the environment, from the path where an orchestrator mounts it, or from the server's home.
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { readOrGenerateSecretFile, readSecretFile } from "./secret.ts";

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

export type HomeSources = SuppliedSources & { readonly home: string };

/** Reads SVC_API_KEY, then /run/secrets/api-key, then $SVC_HOME/secrets/api-key, which is generated when no key is found. */
export function loadApiKey({ home, ...sources }: HomeSources): Sourced {
  const supplied = suppliedApiKey(sources);
  if (supplied !== undefined) return supplied;
  const path = join(home, "secrets/api-key");
  const { secret, generated } = readOrGenerateSecretFile(path, () => `sdk_${randomBytes(32).toString("hex")}`);
  return { ...checkedApiKey(secret, path), generated };
}

/** @throws SETTING_INVALID. */
export function checkedApiKey(secret: string, source: string): Sourced {
  if (!apiKeyForm.test(secret)) {
    fail("SETTING_INVALID", `the API key from ${source} has ${secret.length} characters; expected 32 to 256 of A-Z a-z 0-9 . _ ~ -`);
  }
  return { secret, source, generated: false };
}
