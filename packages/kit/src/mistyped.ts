// Refuses environment variables that are one typing error away from a setting: a character added, dropped, replaced or swapped.
import { fail } from "@svc/contract/failures.ts";

/** @throws SETTING_INVALID for a variable that names no setting but differs from one by a single slip. */
export function refuseMistyped(env: Readonly<Record<string, string | undefined>>, known: readonly string[]): void {
  const names = new Set(known);
  for (const [given, value] of Object.entries(env)) {
    if (!given.startsWith("SVC_") || names.has(given) || value === undefined || value === "") continue;
    const meant = known.find((name) => isOneSlip(given, name));
    if (meant !== undefined) fail("SETTING_INVALID", `environment variable ${given}: there is no such setting; expected ${meant}, or no such variable`);
  }
}

function isOneSlip(one: string, other: string): boolean {
  if (Math.abs(one.length - other.length) > 1) return false;
  let from = 0;
  while (from < one.length && one[from] === other[from]) from++;
  const [rest, otherRest] = [one.slice(from), other.slice(from)];
  const changedPlaces = rest.length > 1 && rest[0] === otherRest[1] && rest[1] === otherRest[0] && rest.slice(2) === otherRest.slice(2);
  return changedPlaces || rest.slice(1) === otherRest || rest === otherRest.slice(1) || rest.slice(1) === otherRest.slice(1);
}
