// The deployment secret, from which envd's init key and the key of upload URLs are derived, independent of API key and token seed.
import { createHmac, randomBytes } from "node:crypto";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { readOrGenerateSecretFile, readSecretFile } from "@svc/kit/secret.ts";
import type { InitKeySeed } from "../agent/init-keys.ts";

// Sources, in order of precedence:
//   the file that node.deployment_secret_file names
//   etcd, if the node is part of a deployment: sealed under the API key, and also kept in the home for starts without etcd
//   $SVC_HOME/secrets/deployment-secret, which is generated

export type DeploymentSecret = { readonly secret: string; readonly source: string };

/** The keys with which a node signs and encrypts. */
export type NodeKeys = {
  readonly initSeed: InitKeySeed;
  readonly uploadKey: string;
  /** Encrypts the values of secrets, and signs certificates and tokens for egress. */
  readonly egressKey: string;
};

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
  return { initSeed: derived(secret, "envd-init-key"), uploadKey: derived(secret, "upload-key"), egressKey: derived(secret, "egress-key") };
}

const derived = (secret: string, purpose: string): string => createHmac("sha256", secret).update(`svc:${purpose}:v1`).digest("hex");
