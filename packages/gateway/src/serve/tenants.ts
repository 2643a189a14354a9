// The gateway's own check of a tenant's request, before any node is asked: nodes check the rest, since only they have the records.
import { fail } from "@svc/contract/failures.ts";
import type { SharedSandbox } from "@svc/contract/shared-records.ts";
import { deleteTemplate } from "@svc/contract/template.ts";
import { refuseDeploymentOnly } from "@svc/kit/keys/deployment-only.ts";
import type { Guard } from "@svc/kit/keys/own-answer.ts";
import { snapshotNamed } from "../members/holdings.ts";
import type { Members } from "../members/members.ts";

export function openGatewayGuard(members: Members): Guard {
  /** Returns the tenant of a snapshot that some node or object storage is known to have. */
  function snapshotOwner(id: string): { readonly tenant?: string | undefined } | undefined {
    return members.all.map((member) => member.held(id)).find((held) => held !== undefined) ?? members.stored.snapshots.get(id)?.listed;
  }

  return ({ tenant }, { name }, input) => {
    const { sandboxID, templateID, snapshotID } = input;
    // A sandbox that any node can take has a record in etcd; it must not even move for another tenant.
    const shared = typeof sandboxID === "string" ? members.moved.get(sandboxID) : undefined;
    if (shared?.manifest !== undefined && ownerOf(shared) !== tenant) fail("SANDBOX_NOT_FOUND", `sandbox '${sandboxID}' was not found`);
    if (typeof templateID === "string" && snapshotNamed(members, templateID) !== undefined) fail("TEMPLATE_NOT_FOUND", `template '${templateID}' not found`);
    const asked = name === deleteTemplate.name ? templateID : snapshotID;
    if (typeof asked === "string") {
      const owner = snapshotOwner(asked);
      // A snapshot that no stream has shown yet passes, because the node that has it checks again.
      const isForeign = snapshotNamed(members, asked) !== undefined || (owner !== undefined && owner.tenant !== tenant);
      if (isForeign) fail(name === deleteTemplate.name ? "TEMPLATE_NOT_FOUND" : "SNAPSHOT_NOT_FOUND", `snapshot '${asked}' was not found`);
    }
    refuseDeploymentOnly(input);
  };
}

/** Returns the tenant in a sandbox's record in etcd; records of an earlier version have it in `listed` alone. */
export function ownerOf(record: SharedSandbox | undefined): string | undefined {
  return record?.tenant ?? record?.listed?.tenant;
}
