// Domains and object sets: an object's identity is (tenant, domain, object set, key), and the master knows the last three as one key.
import { fail } from "@svc/contract/failures.ts";

/** Begins the key of an object outside the default scope, and ends each of the two names: \x1f DOMAIN \x1f OBJECT_SET \x1f KEY. */
const MARK = "\x1f";
const DEFAULT = "default";

export type Scope = { readonly domain?: string | undefined; readonly objectSet?: string | undefined };

/** Returns the prefix of keys on the wire: "" for the default domain and object set. @throws INVALID_REQUEST for an ambiguous name. */
export function scopePrefix({ domain = DEFAULT, objectSet = DEFAULT }: Scope): string {
  for (const [what, name] of [
    ["domain", domain],
    ["object set", objectSet],
  ] as const)
    if (name.includes(MARK)) fail("INVALID_REQUEST", `the ${what} ${JSON.stringify(name)} has the character U+001F, which separates names`);
  const isDefault = (name: string) => name === "" || name === DEFAULT;
  if (isDefault(domain) && isDefault(objectSet)) return "";
  return [MARK, isDefault(domain) ? DEFAULT : domain, MARK, isDefault(objectSet) ? DEFAULT : objectSet, MARK].join("");
}

/** Returns the key as the master knows it. @throws INVALID_REQUEST for a key of the default scope that looks like one of another. */
export function scopedKey(prefix: string, key: string): string {
  if (prefix === "" && key.startsWith(MARK)) fail("INVALID_REQUEST", "a key must not begin with the character U+001F, which begins the names of a domain");
  return prefix + key;
}

/** Returns the two names in a prefix; undefined for the default ones. */
export function scopeOf(prefix: string): Scope {
  const [, domain, objectSet] = prefix.split(MARK);
  return { domain, objectSet };
}

/** Splits a key on the wire into its scope's prefix and the key proper. */
export function splitScope(wireKey: string): { readonly prefix: string; readonly key: string } {
  if (!wireKey.startsWith(MARK)) return { prefix: "", key: wireKey };
  const end = wireKey.indexOf(MARK, wireKey.indexOf(MARK, 1) + 1);
  return end < 2 ? { prefix: "", key: wireKey } : { prefix: wireKey.slice(0, end + 1), key: wireKey.slice(end + 1) };
}
