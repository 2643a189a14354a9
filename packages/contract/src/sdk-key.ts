// The second spelling of the API key, for SDK releases that accept only `e2b_` and hexadecimal digits: derived from the key, never stored.
import { createHmac } from "node:crypto";

const DIGITS = 40;
const form = /^e2b_[0-9a-f]{40}$/;
let last = { key: "", spelt: "" };

/** A key that has this form already is its own spelling. */
export function sdkKeyOf(apiKey: string): string {
  // Servers ask for that of one key, with each request.
  if (last.key !== apiKey) last = { key: apiKey, spelt: form.test(apiKey) ? apiKey : `e2b_${derive(apiKey)}` };
  return last.spelt;
}

/** Returns the spelling of the key with which a given key must be compared. */
export function spellingFor(given: string, apiKey: string): string {
  return form.test(given) ? sdkKeyOf(apiKey) : apiKey;
}

const derive = (apiKey: string) => createHmac("sha256", apiKey).update("svc:e2b-key:v1").digest("hex").slice(0, DIGITS);
