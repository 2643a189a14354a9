// Where a page of a list ended, as a token: a place in the order of all things, so that it is good on every node that holds some.
import { fail } from "./failures.ts";

/** A moment in milliseconds since 1970, then an id. */
export type Position = readonly [atMs: number, id: string];

export function positionToken(position: Position): string {
  return Buffer.from(JSON.stringify(position)).toString("base64url");
}

/** Before, at (0) or behind another one. */
export function comparePositions(a: Position, b: Position): number {
  return a[0] - b[0] || (a[1] < b[1] ? -1 : a[1] > b[1] ? 1 : 0);
}

/** @throws INVALID_REQUEST. */
export function parsePositionToken(token: string): Position {
  try {
    const value: unknown = JSON.parse(Buffer.from(token, "base64url").toString("utf8"));
    if (Array.isArray(value) && typeof value[0] === "number" && typeof value[1] === "string") return [value[0], value[1]];
  } catch {
    // answered below
  }
  return fail("INVALID_REQUEST", "nextToken: was not issued by this server; use the header x-next-token of the previous page");
}
