// The node's token seed, with the sources and the order of the specification; kit/api-key.ts has those of the API key.
import { randomBytes } from "node:crypto";
import { readdirSync, unlinkSync } from "node:fs";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Sourced } from "@svc/kit/api-key.ts";
import { readOrGenerateSecretFile, readSecretFile } from "@svc/kit/secret.ts";

const MIN_SEED_LENGTH = 32;
const MAX_SEED_LENGTH = 1024;

/**
 * Reads SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED or the config entry (`configured` is the one that is set), else the persisted seed, generated on the
 * first start. With `tokensInUse`, tokens of existing sandboxes derive from the seed, so a lost seed file is refused rather than silently
 * replaced.
 */
export function loadSeed(home: string, configured: string, tokensInUse: boolean): Sourced {
  if (configured.trim() !== "") return checkedSeed(configured.trim(), "SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED or sandbox.access_token_hash_seed");
  const path = join(home, "secrets/sandbox-access-token-hash-seed");
  if (tokensInUse && readSecretFile(path) === undefined) {
    fail(
      "SETTING_INVALID",
      `${path} is missing, but the tokens of existing sandboxes were derived from it; restore it, or set SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED (with a new seed the old tokens are refused)`,
    );
  }
  const { secret, generated } = readOrGenerateSecretFile(path, () => randomBytes(32).toString("hex"));
  return { ...checkedSeed(secret.trim(), path), generated };
}

function checkedSeed(secret: string, source: string): Sourced {
  if (secret.length < MIN_SEED_LENGTH || secret.length > MAX_SEED_LENGTH) {
    fail("SETTING_INVALID", `the token seed from ${source} has ${secret.length} characters; expected ${MIN_SEED_LENGTH} to ${MAX_SEED_LENGTH}`);
  }
  return { secret, source, generated: false };
}

/** Removes the temporary files of a start that was killed while it wrote a secret. */
export function sweepHalfWritten(home: string): void {
  const directory = join(home, "secrets");
  try {
    for (const name of readdirSync(directory)) if (/\.\d+\.[0-9a-f]{8}$/.test(name)) unlinkSync(join(directory, name));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
}
