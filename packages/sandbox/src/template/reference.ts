// Parses names of templates as people write them: NAME or NAME:TAG.
import { randomBytes } from "node:crypto";
import { fail } from "@svc/contract/failures.ts";

export const DEFAULT_TAG = "default";
const namePattern = /^[a-z0-9][a-z0-9._-]{0,127}$/;
const tagPattern = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/;

export type Reference = { readonly name: string; readonly tag: string | undefined };

/** Splits at the colon without checking the parts. */
export function splitReference(text: string): Reference {
  const at = text.indexOf(":");
  return at === -1 ? { name: text, tag: undefined } : { name: text.slice(0, at), tag: text.slice(at + 1) };
}

/** Parses a name for a new template. @throws INVALID_REQUEST that says what a name is. */
export function newReference(text: string): Reference {
  const reference = splitReference(text);
  if (!namePattern.test(reference.name)) {
    fail("INVALID_REQUEST", `name: expected up to 128 lower-case letters, digits, '-', '_' and '.', optionally followed by ':TAG'; got '${text}'`);
  }
  if (reference.tag !== undefined) checkTag(reference.tag);
  return reference;
}

export function checkTag(tag: string): void {
  if (!tagPattern.test(tag)) fail("INVALID_REQUEST", `tag: expected up to 128 letters, digits, '-', '_' and '.'; got '${tag}'`);
}

const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789";
const ID_LENGTH = 20;

/** Returns 20 characters of [a-z0-9], as E2B clients print template ids. */
export function newTemplateID(): string {
  let id = "";
  while (id.length < ID_LENGTH) {
    // 252 is 7 * 36; higher bytes are skipped, because they would favour the first letters.
    for (const byte of randomBytes(ID_LENGTH)) if (byte < 252 && id.length < ID_LENGTH) id += alphabet[byte % 36];
  }
  return id;
}
