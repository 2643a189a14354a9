// What a sandbox learns about itself: all of it when it is new, what may have changed when it comes back.
import { randomBytes, randomUUID } from "node:crypto";
import { deriveToken } from "@svc/kit/secret.ts";
import type { Identity, SendIdentity } from "../agent/init.ts";
import type { Clock } from "../records/clock.ts";
import type { Claim, SandboxRecord } from "../records/state.ts";
import type { RuntimeHandle } from "../runtime/runtime.ts";

const ENTROPY_BYTES = 64;

export type Named = Pick<SandboxRecord, "sandboxID" | "templateID" | "initKey">;

/** Whose the system is that envd finds: made for this sandbox, its own of before at another place, or somebody else's. */
export type Origin = "fresh" | "returned" | "copied";

/** Each @throws SANDBOX_START_FAILED when envd refuses or does not answer. */
export interface Identities {
  /** Everything, for an envd that knows nothing or believes to be another's. */
  sendAll(named: Named, handle: RuntimeHandle, claim: Claim, origin: Origin): Promise<void>;
  /** For one that comes back as itself: the token (the seed may be another), the clock, the resolver. */
  sendReturn(named: Named, handle: RuntimeHandle, claim: Claim): Promise<void>;
  /** The token alone: the seed may be another than at the last start. */
  sendToken(named: Named, handle: RuntimeHandle): Promise<void>;
}

export type IdentityParts = {
  readonly seed: string;
  readonly clock: Clock;
  readonly send: SendIdentity;
  /** For the hooks of a template, in a copy. */
  readonly onCopyMs: number;
};

export function openIdentities({ seed, clock, send, onCopyMs }: IdentityParts): Identities {
  const tokenOf = (sandboxID: string) => deriveToken(seed, "envd", sandboxID);
  const passing = (sandboxID: string, claim: Claim): Identity => ({
    sandboxId: sandboxID,
    accessToken: claim.secure ? tokenOf(sandboxID) : "",
    timestamp: new Date(clock.wallMs()).toISOString(),
    entropy: randomBytes(ENTROPY_BYTES).toString("base64"),
    generation: randomUUID(),
  });

  return {
    sendAll({ sandboxID, templateID, initKey }, handle, claim, origin) {
      return send(handle, initKey, {
        ...passing(sandboxID, claim),
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
        ...(origin === "copied" ? { hostname: sandboxID, machineId: randomBytes(16).toString("hex"), onCopyMs } : {}),
      });
    },
    sendReturn: ({ sandboxID, initKey }, handle, claim) => send(handle, initKey, { ...passing(sandboxID, claim), ...place(handle) }),
    sendToken: ({ sandboxID, initKey }, handle) => send(handle, initKey, { sandboxId: sandboxID, accessToken: tokenOf(sandboxID) }),
  };
}

function place({ network }: RuntimeHandle) {
  return network === undefined ? {} : { nameserver: network.gatewayAddress };
}
