// The end of a list's page as a token: a position in the order of all items, so that it is valid on every node.
import { fail } from "./failures.ts";

/** A moment in milliseconds since 1970, then an id. */
export type Position = readonly [atMs: number, id: string];

export function positionToken(position: Position): string {
  return Buffer.from(JSON.stringify(position)).toString("base64url");
}

/** Returns a negative number, 0 or a positive number if `a` is before, at or after `b`. */
export function comparePositions(a: Position, b: Position): number {
  return a[0] - b[0] || (a[1] < b[1] ? -1 : a[1] > b[1] ? 1 : 0);
}

/** @throws INVALID_REQUEST. */
export function parsePositionToken(token: string, member = "nextToken", header = "x-next-token"): Position {
  try {
    const value: unknown = JSON.parse(Buffer.from(token, "base64url").toString("utf8"));
    if (Array.isArray(value) && typeof value[0] === "number" && typeof value[1] === "string") return [value[0], value[1]];
  } catch {
    // The failure below answers it.
  }
  return fail("INVALID_REQUEST", `${member}: was not issued by this server; use the header ${header} of the previous page`);
}
