// Makes keys and their hashes. A key has 256 random bits, so a plain hash of it cannot be reversed, and needs no salt.
import { hash, randomBytes } from "node:crypto";
import type { KeyRecord } from "@svc/contract/keys.ts";
import { sdkKeyOf } from "@svc/contract/sdk-key.ts";

export type MadeKey = { readonly apiKey: string; readonly key: string; readonly secret: KeyRecord["secrets"][number] };

const SUFFIX_CHARS = 4;
/** Both spellings of a key that svc makes. */
const form = /^(?:sdk_[0-9a-f]{64}|e2b_[0-9a-f]{40})$/;

/** Returns false for texts that cannot be a named key, which are then not hashed. */
export const isKeyForm = (text: string): boolean => form.test(text);

export const hashOfKey = (text: string): string => hash("sha256", text, "hex");

export function makeKey(): MadeKey {
  const apiKey = `sdk_${randomBytes(32).toString("hex")}`;
  const key = sdkKeyOf(apiKey);
  return { apiKey, key, secret: { hash: hashOfKey(apiKey), sdkHash: hashOfKey(key), suffix: key.slice(-SUFFIX_CHARS) } };
}
