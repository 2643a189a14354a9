// Members of requests that reach what only the deployment owns; a named key may not use them.
import { fail } from "@svc/contract/failures.ts";

const members = [{ member: "iam", what: "identity tokens" }] as const;
/** A rule with this placeholder inserts a secret of the deployment into a request that the tenant chooses. */
const PLACEHOLDER = "${e2b.";

/** @throws ACCESS_DENIED. */
export function refuseDeploymentOnly(input: Readonly<Record<string, unknown>>): void {
  for (const { member, what } of members) {
    const value = input[member];
    const isAsked = value !== undefined && value !== null && (!Array.isArray(value) || value.length > 0);
    if (isAsked) fail("ACCESS_DENIED", `${member}: ${what} belong to the deployment, and a named key cannot use them`);
  }
  if (JSON.stringify([input["network"], input["rules"]]).includes(PLACEHOLDER))
    fail("ACCESS_DENIED", "network.rules: secrets and identity tokens belong to the deployment, and a rule of a named key cannot insert them");
}
