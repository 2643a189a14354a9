// The deployment secret, from which envd's init key and the key of upload URLs are derived, independent of API key and token seed.
import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from "node:crypto";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { readOrGenerateSecretFile, readSecretFile } from "@svc/kit/secret.ts";
import type { InitKeySeed } from "../agent/init-keys.ts";

// Sources, in order of precedence:
//   the file that node.deployment_secret_file names
//   etcd, if the node is part of a deployment: sealed under the API key, and also kept in the home for starts without etcd
//   $SVC_HOME/secrets/deployment-secret, which is generated

export type DeploymentSecret = { readonly secret: string; readonly source: string };

/** The keys with which a node signs. */
export type NodeKeys = { readonly initSeed: InitKeySeed; readonly uploadKey: string };

export const deploymentSecretPath = (home: string) => join(home, "secrets/deployment-secret");
const MIN_LENGTH = 32;
const MAX_LENGTH = 1024;

/** @throws SETTING_INVALID if the file that the setting names is missing or does not have a valid length. */
export function givenSecret(path: string): DeploymentSecret | undefined {
  if (path === "") return undefined;
  const text =
    readSecretFile(path) ??
    fail("SETTING_INVALID", `setting node.deployment_secret_file: ${path} is not there; expected a file with ${MIN_LENGTH} to ${MAX_LENGTH} characters`);
  return { secret: checked(text.trim(), path), source: path };
}

export function secretOfHome(home: string): DeploymentSecret | undefined {
  const path = deploymentSecretPath(home);
  const text = readSecretFile(path);
  return text === undefined ? undefined : { secret: checked(text, path), source: path };
}

export const newSecret = (): string => randomBytes(32).toString("hex");

function checked(secret: string, source: string): string {
  if (secret.length < MIN_LENGTH || secret.length > MAX_LENGTH)
    fail("SETTING_INVALID", `the deployment secret from ${source} has ${secret.length} characters; expected ${MIN_LENGTH} to ${MAX_LENGTH}`);
  return secret;
}

/** Returns the keys of a node without a deployment. */
export function keysOfHome(home: string, settingPath: string): NodeKeys {
  const given = givenSecret(settingPath) ?? secretOfHome(home);
  if (given !== undefined) return keysFrom(given.secret);
  return keysFrom(readOrGenerateSecretFile(deploymentSecretPath(home), newSecret).secret);
}

export function keysFrom(secret: string): NodeKeys {
  return { initSeed: derived(secret, "envd-init-key"), uploadKey: derived(secret, "upload-key") };
}

const derived = (secret: string, purpose: string): string => createHmac("sha256", secret).update(`svc:${purpose}:v1`).digest("hex");

const SALT_BYTES = 16;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** Encrypts with AES-256-GCM under a key derived from `key` for this purpose only; returns base64 of salt, nonce, tag and cipher text. */
export function seal(text: string, key: string, purpose: string): string {
  const salt = randomBytes(SALT_BYTES);
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv("aes-256-gcm", sealingKey(key, salt, purpose), nonce);
  const body = Buffer.concat([cipher.update(text, "utf8"), cipher.final()]);
  return Buffer.concat([salt, nonce, cipher.getAuthTag(), body]).toString("base64");
}

/** Returns undefined if the text was sealed under another key or for another purpose, or was modified. */
export function unseal(sealed: string, key: string, purpose: string): string | undefined {
  const bytes = Buffer.from(sealed, "base64");
  if (bytes.length < SALT_BYTES + NONCE_BYTES + TAG_BYTES) return undefined;
  const nonceAt = SALT_BYTES;
  const tagAt = nonceAt + NONCE_BYTES;
  const bodyAt = tagAt + TAG_BYTES;
  try {
    const decipher = createDecipheriv("aes-256-gcm", sealingKey(key, bytes.subarray(0, nonceAt), purpose), bytes.subarray(nonceAt, tagAt), {
      authTagLength: TAG_BYTES,
    });
    decipher.setAuthTag(bytes.subarray(tagAt, bodyAt));
    return Buffer.concat([decipher.update(bytes.subarray(bodyAt)), decipher.final()]).toString("utf8");
  } catch {
    return undefined;
  }
}

/** The keys have at least 128 bits of entropy, so they need no stretching. */
const sealingKey = (key: string, salt: Uint8Array, purpose: string) => Buffer.from(hkdfSync("sha256", key, salt, `svc:seal:${purpose}:v1`, 32));
