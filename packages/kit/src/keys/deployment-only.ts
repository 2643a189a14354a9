// Members of requests that reach what only the deployment owns; a named key may not use them.
import { fail } from "@svc/contract/failures.ts";

const members = [{ member: "iam", what: "identity tokens" }] as const;
/** Matches a placeholder of anything but a secret, which resolves in the tenant alone. */
const PLACEHOLDER = /\$\{e2b\.(?!secrets\.)/;

/** @throws ACCESS_DENIED. */
export function refuseDeploymentOnly(input: Readonly<Record<string, unknown>>): void {
  for (const { member, what } of members) {
    const value = input[member];
    const isAsked = value !== undefined && value !== null && (!Array.isArray(value) || value.length > 0);
    if (isAsked) fail("ACCESS_DENIED", `${member}: ${what} belong to the deployment, and a named key cannot use them`);
  }
  if (PLACEHOLDER.test(JSON.stringify([input["network"], input["rules"]])))
    fail("ACCESS_DENIED", "network.rules: identity tokens belong to the deployment, and a rule of a named key cannot insert them");
}
