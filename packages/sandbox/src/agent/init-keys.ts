// The keys by which an envd recognizes its nodes: new sandboxes use the current one, a checkpoint keeps the key it was made under (I34).
import { createPrivateKey, createPublicKey, type KeyObject } from "node:crypto";
import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { readOrGenerateSecretFile, readSecretFile } from "@svc/kit/secret.ts";

// $SVC_HOME/secrets/envd-init-keys/PUBLIC: one file per key under which a sandbox of this home may have been started

/** 64 hexadecimal digits: the seed of an Ed25519 key. */
export type InitKeySeed = string;

export interface InitKeys {
  /** The public key, base64, under which new sandboxes start. */
  readonly current: string;
  /** The key of records that name none. */
  readonly unnamed: string;
  /** @throws SANDBOX_START_FAILED for a key that this node does not have. */
  signer(publicKeyBase64: string | undefined): KeyObject;
  has(publicKeyBase64: string): boolean;
  /** Stores a key in the home. */
  add(seed: InitKeySeed): void;
  /** The seeds for other nodes, which resume sandboxes that were paused here. */
  seeds(): readonly InitKeySeed[];
}

const FOLDER = "secrets/envd-init-keys";
const PKCS8_ED25519 = Buffer.from("302e020100300506032b657004220420", "hex");
const seedPattern = /^[0-9a-f]{64}$/;

/** `current`: the seed for new sandboxes; it is stored in the home with the earlier ones, unless `isPassing`. */
export function openInitKeys(home: string, current: InitKeySeed, isPassing = false): InitKeys {
  const keys = new Map<string, { readonly seed: InitKeySeed; readonly privateKey: KeyObject }>();
  const folder = join(home, FOLDER);

  function remember(seed: InitKeySeed): string {
    const pair = pairOf(seed);
    keys.set(pair.publicKeyBase64, { seed, privateKey: pair.privateKey });
    return pair.publicKeyBase64;
  }
  function add(seed: InitKeySeed): string {
    const publicKeyBase64 = remember(checked(seed, "a key of another node"));
    const path = join(folder, fileOf(publicKeyBase64));
    if (readOrGenerateSecretFile(path, () => seed).secret !== seed) fail("SETTING_INVALID", `${path} is damaged: it does not contain the key in its name`);
    return publicKeyBase64;
  }

  mkdirSync(folder, { recursive: true, mode: 0o700 });
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    const publicKeyBase64 = remember(checked(readSecretFile(path) ?? "", path));
    if (fileOf(publicKeyBase64) !== name) fail("SETTING_INVALID", `${path} is damaged: it contains another key than the one in its name`);
  }
  const publicKeyBase64 = isPassing ? remember(current) : add(current);

  return {
    current: publicKeyBase64,
    unnamed: publicKeyBase64,
    signer(asked = publicKeyBase64) {
      const found = keys.get(asked);
      if (found !== undefined) return found.privateKey;
      return fail(
        "SANDBOX_START_FAILED",
        `its envd obeys only a node with the key ${asked}, which this node does not have: it was created in another deployment`,
      );
    },
    has: (asked) => keys.has(asked),
    add: (seed) => void add(seed),
    seeds: () => [...keys.values()].map(({ seed }) => seed),
  };
}

/** Returns a key's name in files and in etcd: its public key as base64url. */
export const initKeyName = (seed: InitKeySeed): string => fileOf(pairOf(seed).publicKeyBase64);

function pairOf(seed: InitKeySeed): { publicKeyBase64: string; privateKey: KeyObject } {
  const privateKey = createPrivateKey({ key: Buffer.concat([PKCS8_ED25519, Buffer.from(seed, "hex")]), format: "der", type: "pkcs8" });
  const spki = createPublicKey(privateKey).export({ format: "der", type: "spki" });
  return { privateKey, publicKeyBase64: spki.subarray(spki.length - 32).toString("base64") };
}

function checked(seed: string, source: string): InitKeySeed {
  if (!seedPattern.test(seed)) fail("SETTING_INVALID", `${source} is damaged: expected 64 hexadecimal characters`);
  return seed;
}

const fileOf = (publicKeyBase64: string) => Buffer.from(publicKeyBase64, "base64").toString("base64url");
