// What a sandbox is told about itself: all of it when it is new, what may have changed when it comes back.
import { randomBytes, randomUUID } from "node:crypto";
import { deriveToken } from "@svc/kit/secret.ts";
import type { RuntimeHandle } from "../runtime/runtime.ts";
import { type Identity, sendIdentity } from "./envd.ts";
import type { Node } from "./node.ts";
import type { Claim } from "./state.ts";

const ENTROPY_BYTES = 64;

export type Named = { readonly sandboxID: string; readonly templateID: string };

/** Whose the system is that envd finds: made for this sandbox, its own of before at another place, or somebody else's. */
export type Origin = "fresh" | "returned" | "copied";

/** Everything, for an envd that knows nothing or believes to be another's. */
export function tellAll(node: Node, { sandboxID, templateID }: Named, handle: RuntimeHandle, claim: Claim, origin: Origin): Promise<void> {
  const identity: Identity = {
    ...passing(node, sandboxID, claim),
    envVars: {
      ...claim.envVars,
      E2B_SANDBOX: "true",
      E2B_SANDBOX_ID: sandboxID,
      E2B_TEMPLATE_ID: templateID,
      SVC_SANDBOX_ID: sandboxID,
    },
    defaultUser: handle.onlyUser ?? claim.user,
    defaultWorkdir: claim.workdir,
    strictFiles: claim.strictFiles === true,
    ...(origin === "fresh" ? {} : place(handle)),
    ...(origin === "copied"
      ? { hostname: sandboxID, machineId: randomBytes(16).toString("hex"), onCopyMs: node.settings.sandbox.on_copy_timeout_seconds * 1000 }
      : {}),
  };
  return sendIdentity(handle, identity, node.initKey.privateKey);
}

/** For one that comes back as itself: the token (the seed may be another), the clock, the resolver. */
export function tellReturn(node: Node, { sandboxID }: Named, handle: RuntimeHandle, claim: Claim): Promise<void> {
  return sendIdentity(handle, { ...passing(node, sandboxID, claim), ...place(handle) }, node.initKey.privateKey);
}

function passing(node: Node, sandboxID: string, claim: Claim) {
  return {
    sandboxId: sandboxID,
    accessToken: claim.secure ? deriveToken(node.seed, "envd", sandboxID) : "",
    timestamp: new Date(node.clock.wallMs()).toISOString(),
    entropy: randomBytes(ENTROPY_BYTES).toString("base64"),
    generation: randomUUID(),
  };
}

function place({ network }: RuntimeHandle) {
  return network === undefined ? {} : { nameserver: network.gatewayAddress };
}
