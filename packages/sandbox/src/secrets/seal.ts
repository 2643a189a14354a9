// Encrypts texts under a key of the deployment, bound to one purpose.
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";

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
