// The gateway's own check of a tenant's request, before any node is asked: nodes check the rest, since only they have the records.
import { fail } from "@svc/contract/failures.ts";
import { refuseDeploymentOnly } from "@svc/kit/keys/deployment-only.ts";
import type { Guard } from "@svc/kit/keys/own-answer.ts";
import { snapshotNamed } from "../members/holdings.ts";
import type { Members } from "../members/members.ts";

export function openGatewayGuard(members: Members): Guard {
  return ({ tenant }, _operation, input) => {
    const { sandboxID, templateID } = input;
    // A sandbox that any node can take has a record in etcd; it must not even move for another tenant.
    const shared = typeof sandboxID === "string" ? members.moved.get(sandboxID) : undefined;
    if (shared?.manifest !== undefined && shared.listed?.tenant !== tenant) fail("SANDBOX_NOT_FOUND", `sandbox '${sandboxID}' was not found`);
    if (typeof templateID === "string" && snapshotNamed(members, templateID) !== undefined) fail("TEMPLATE_NOT_FOUND", `template '${templateID}' not found`);
    refuseDeploymentOnly(input);
  };
}
