// Compares secrets character by character in constant time: kit's comparison hashes both sides, which alone would cost a
// third of what the proxy may spend on a request.

/** The length of a secret is no secret; every character is looked at whatever the others are. */
export function sameText(given: string, expected: string): boolean {
  if (given.length !== expected.length || expected.length === 0) return false;
  let difference = 0;
  for (let at = 0; at < expected.length; at++) difference |= given.charCodeAt(at) ^ expected.charCodeAt(at);
  return difference === 0;
}
