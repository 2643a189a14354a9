// The identity that a sandbox gets: complete when it is new, only what may have changed when it is resumed.
import { randomBytes, randomUUID } from "node:crypto";
import { deriveToken } from "@svc/kit/secret.ts";
import type { Identity, SendIdentity } from "../../agent/init.ts";
import { trustVariables } from "../../agent/trust.ts";
import type { Clock } from "../../records/clock.ts";
import type { Claim, SandboxRecord } from "../../records/state.ts";
import type { RuntimeHandle } from "../../runtime/runtime.ts";

const ENTROPY_BYTES = 64;

export type Named = Pick<SandboxRecord, "sandboxID" | "templateID" | "initKey">;

/** The origin of the system that envd runs in: made for this sandbox, its own from before (`returned`), or another sandbox's (`copied`). */
export type Origin = "fresh" | "returned" | "copied";

/** Each @throws SANDBOX_START_FAILED when envd refuses or does not answer. */
export interface Identities {
  /** Sends everything, to an envd that has no identity yet or that of its source. */
  sendAll(named: Named, handle: RuntimeHandle, claim: Claim, origin: Origin): Promise<void>;
  /** Sends a resumed sandbox its token (the seed may have changed), the time and the DNS server. */
  sendReturn(named: Named, handle: RuntimeHandle, claim: Claim): Promise<void>;
  /** Sends only the variables of new processes. */
  sendVariables(named: Named, handle: RuntimeHandle, claim: Claim): Promise<void>;
  /** Sends only the token: the seed may have changed since the last start. */
  sendToken(named: Named, handle: RuntimeHandle): Promise<void>;
}

export type IdentityParts = {
  readonly seed: string;
  readonly clock: Clock;
  readonly send: SendIdentity;
  /** The time that a template's on-copy hooks may take. */
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
        envVars: variablesOf(sandboxID, templateID, claim),
        defaultUser: handle.onlyUser ?? claim.user,
        defaultWorkdir: claim.workdir,
        strictFiles: claim.strictFiles === true,
        ...(origin === "fresh" ? {} : nameserverOf(handle)),
        ...(origin === "copied" ? { hostname: sandboxID, machineId: randomBytes(16).toString("hex"), onCopyMs } : {}),
      });
    },
    sendReturn: ({ sandboxID, initKey }, handle, claim) => send(handle, initKey, { ...passing(sandboxID, claim), ...nameserverOf(handle) }),
    sendVariables: ({ sandboxID, templateID, initKey }, handle, claim) =>
      send(handle, initKey, { sandboxId: sandboxID, envVars: variablesOf(sandboxID, templateID, claim) }),
    sendToken: ({ sandboxID, initKey }, handle) => send(handle, initKey, { sandboxId: sandboxID, accessToken: tokenOf(sandboxID) }),
  };
}

function variablesOf(sandboxID: string, templateID: string, { envVars, egress }: Claim): Record<string, string> {
  return {
    // The client's own variables take precedence.
    ...(egress.rules === undefined ? {} : trustVariables),
    ...envVars,
    E2B_SANDBOX: "true",
    E2B_SANDBOX_ID: sandboxID,
    E2B_TEMPLATE_ID: templateID,
    SVC_SANDBOX_ID: sandboxID,
  };
}

function nameserverOf({ network }: RuntimeHandle) {
  return network === undefined ? {} : { nameserver: network.gatewayAddress };
}
