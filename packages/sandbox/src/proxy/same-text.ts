// Compares secrets character by character in constant time: a search over all sandboxes compares thousands of secrets, and kit's comparison,
// which hashes both sides, would take five times as long as all the rest of it.

/** The length of a secret is public; every character is compared, whatever the others are. */
export function sameText(given: string, expected: string): boolean {
  if (given.length !== expected.length || expected.length === 0) return false;
  let difference = 0;
  for (let at = 0; at < expected.length; at++) difference |= given.charCodeAt(at) ^ expected.charCodeAt(at);
  return difference === 0;
}
