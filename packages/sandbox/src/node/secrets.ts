// The node's secrets: API key, token seed and the key that signs what it tells envd; sources and order as specified.
import { createPrivateKey, createPublicKey, type KeyObject, randomBytes } from "node:crypto";
import { readdirSync, unlinkSync } from "node:fs";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { readOrGenerateSecretFile, readSecretFile } from "@svc/kit/secret.ts";

/** 32 to 256 URL-safe characters (RFC 3986 unreserved). */
const apiKeyForm = /^[A-Za-z0-9._~-]{32,256}$/;
const MIN_SEED_LENGTH = 32;
const MAX_SEED_LENGTH = 1024;

export type Sourced = { readonly secret: string; readonly source: string; readonly generated: boolean };

export type SecretSources = {
  readonly home: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Where an orchestrator mounts the key; an argument so that tests need not write to /run. */
  readonly mountedKeyPath?: string;
};

/** SVC_API_KEY, then /run/secrets/api-key, then $SVC_HOME/secrets/api-key, which is generated when no key is found. */
export function loadApiKey({ home, env, mountedKeyPath = "/run/secrets/api-key" }: SecretSources): Sourced {
  const fromEnv = env["SVC_API_KEY"];
  if (fromEnv !== undefined && fromEnv !== "") return checkedKey(fromEnv, "SVC_API_KEY");
  const mounted = readSecretFile(mountedKeyPath);
  if (mounted !== undefined) return checkedKey(mounted, mountedKeyPath);
  const path = join(home, "secrets/api-key");
  const { secret, generated } = readOrGenerateSecretFile(path, () => `sdk_${randomBytes(32).toString("hex")}`);
  return { ...checkedKey(secret, path), generated };
}

function checkedKey(secret: string, source: string): Sourced {
  if (!apiKeyForm.test(secret)) {
    fail("SETTING_INVALID", `the API key from ${source} has ${secret.length} characters; asked for 32 to 256 of A-Z a-z 0-9 . _ ~ -`);
  }
  return { secret, source, generated: false };
}

/**
 * SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED or the config entry (`configured` holds whichever stands), else the
 * persisted seed, generated on the first start. `tokensInUse`: sandboxes exist whose tokens hang on it, so a
 * lost managed seed is refused rather than silently replaced.
 */
export function loadSeed(home: string, configured: string, tokensInUse: boolean): Sourced {
  if (configured.trim() !== "") return checkedSeed(configured.trim(), "SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED or sandbox.access_token_hash_seed");
  const path = join(home, "secrets/sandbox-access-token-hash-seed");
  if (tokensInUse && readSecretFile(path) === undefined) {
    fail(
      "SETTING_INVALID",
      `${path} is missing, but sandboxes live whose tokens were derived from it; restore it, or give the seed by SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED (a new one refuses the old tokens)`,
    );
  }
  const { secret, generated } = readOrGenerateSecretFile(path, () => randomBytes(32).toString("hex"));
  return { ...checkedSeed(secret.trim(), path), generated };
}

function checkedSeed(secret: string, source: string): Sourced {
  if (secret.length < MIN_SEED_LENGTH || secret.length > MAX_SEED_LENGTH) {
    fail("SETTING_INVALID", `the token seed from ${source} has ${secret.length} characters; asked for ${MIN_SEED_LENGTH} to ${MAX_SEED_LENGTH}`);
  }
  return { secret, source, generated: false };
}

const PKCS8_ED25519 = Buffer.from("302e020100300506032b657004220420", "hex");

/** The Ed25519 key by which envd knows its node: envd holds the public half, so no code inside can speak as the node. */
export function loadInitKey(home: string): { privateKey: KeyObject; publicKeyBase64: string } {
  const { secret } = readOrGenerateSecretFile(join(home, "secrets/envd-init-key"), () => randomBytes(32).toString("hex"));
  if (!/^[0-9a-f]{64}$/.test(secret)) fail("SETTING_INVALID", `${home}/secrets/envd-init-key is damaged: asked for 64 hexadecimal characters`);
  const privateKey = createPrivateKey({ key: Buffer.concat([PKCS8_ED25519, Buffer.from(secret, "hex")]), format: "der", type: "pkcs8" });
  const spki = createPublicKey(privateKey).export({ format: "der", type: "spki" });
  return { privateKey, publicKeyBase64: spki.subarray(spki.length - 32).toString("base64") };
}

/** Signs the addresses that uploads go to. */
export function loadUploadKey(home: string): string {
  return readOrGenerateSecretFile(join(home, "secrets/upload-key"), () => randomBytes(32).toString("hex")).secret;
}

/** Removes what a start that was killed while it wrote a secret left beside it. */
export function sweepHalfWritten(home: string): void {
  const directory = join(home, "secrets");
  try {
    for (const name of readdirSync(directory)) if (/\.\d+\.[0-9a-f]{8}$/.test(name)) unlinkSync(join(directory, name));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
}
