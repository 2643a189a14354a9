// A tenant's requests at this node name its own sandboxes, and templates that are public; all else is absent to them.
import { fail } from "@svc/contract/failures.ts";
import { createSnapshot } from "@svc/contract/lifecycle.ts";
import { deleteTemplate } from "@svc/contract/template.ts";
import { refuseDeploymentOnly } from "@svc/kit/keys/deployment-only.ts";
import { ownIdempotencyKey } from "@svc/kit/keys/idempotency.ts";
import type { Guard } from "@svc/kit/keys/own-answer.ts";
import { type Principal, tenantOf } from "@svc/kit/keys/principal.ts";
import type { Quarantine } from "../../records/quarantine.ts";
import type { Registry } from "../../records/registry.ts";
import type { Snapshots } from "../../records/snapshots.ts";
import type { CreateInput } from "../verbs/create.ts";

export type TenantParts = {
  readonly registry: Pick<Registry, "ownerOf">;
  readonly quarantine: Pick<Quarantine, "find">;
  readonly snapshots: Pick<Snapshots, "find">;
};

/** Adds the tenant and the key of the request, which no member of the body can set. */
export function ownCreate<T extends Omit<CreateInput, "tenant" | "keyID" | "secure">>(
  principal: Principal,
  input: T,
): T & Pick<CreateInput, "tenant" | "keyID" | "idempotencyKey"> {
  return {
    ...input,
    idempotencyKey: ownIdempotencyKey(principal, input.idempotencyKey),
    tenant: tenantOf(principal),
    keyID: principal.kind === "tenant" ? principal.keyID : undefined,
  };
}

export function openTenantGuard({ registry, quarantine, snapshots }: TenantParts): Guard {
  return ({ tenant }, { name }, input) => {
    const { sandboxID } = input;
    if (typeof sandboxID === "string") {
      const owner = registry.ownerOf(sandboxID);
      // An unknown id passes only where the handler finds nothing under it either: it may have moved, which a gateway must learn.
      const isForeign = owner === "none" ? quarantine.find("sandbox", sandboxID) !== undefined : owner.tenant !== tenant;
      if (isForeign) fail("SANDBOX_NOT_FOUND", `sandbox '${sandboxID}' was not found`);
    }
    const snapshotID = name === deleteTemplate.name ? input["templateID"] : input["snapshotID"];
    if (typeof snapshotID === "string" && snapshots.find(snapshotID)?.tenant !== tenant)
      fail(name === deleteTemplate.name ? "TEMPLATE_NOT_FOUND" : "SNAPSHOT_NOT_FOUND", `snapshot '${snapshotID}' was not found`);
    if (name === createSnapshot.name && typeof input["name"] === "string")
      fail("ACCESS_DENIED", "name: names of snapshots belong to the deployment; leave it out, and use the snapshot's id");
    refuseDeploymentOnly(input);
  };
}

/** Keeps those of the ids that belong to the principal; as one text, in the form of the query. */
export function ownIDs(principal: Principal, registry: TenantParts["registry"], ids: string): string {
  if (principal.kind === "deployment") return ids;
  return ids
    .split(",")
    .filter((id) => {
      const owner = registry.ownerOf(id);
      return owner !== "none" && owner.tenant === principal.tenant;
    })
    .join(",");
}
