// Lets sandboxes with rules by host trust the deployment's authority: variables for new processes, and files for all.
import type { Log } from "@svc/kit/log.ts";
import { deriveToken } from "@svc/kit/secret.ts";
import { installTrust } from "../../agent/trust.ts";
import type { EgressPolicy } from "../../egress/policy.ts";
import type { Claim } from "../../records/state.ts";
import type { RuntimeHandle } from "../../runtime/runtime.ts";
import type { Secrets } from "../../secrets/open-secrets.ts";
import type { Identities, Named } from "./identity.ts";

export type TrustParts = {
  readonly seed: string;
  readonly secrets: Pick<Secrets, "authority">;
  readonly identities: Pick<Identities, "sendVariables">;
  readonly log: Log;
};

export interface Trust {
  /** For a sandbox whose envd has just got its whole identity, variables included. Never throws: programs that do not trust the authority say so. */
  install(named: Named, handle: RuntimeHandle, claim: Claim): Promise<void>;
  /** For a sandbox that runs and now gets these rules. */
  add(named: Named, handle: RuntimeHandle, claim: Claim, egress: EgressPolicy): Promise<void>;
}

export function openTrust({ seed, secrets, identities, log }: TrustParts): Trust {
  async function install({ sandboxID }: Named, handle: RuntimeHandle, { egress, secure }: Claim): Promise<void> {
    if (egress.rules === undefined || handle.network === undefined) return;
    try {
      await installTrust(handle, secure ? deriveToken(seed, "envd", sandboxID) : undefined, secrets.authority());
    } catch (error) {
      log.warn({ err: error, sandboxID }, "the authority for egress could not be installed in a sandbox: its programs will refuse hosts with rules");
    }
  }
  return {
    install,
    async add(named, handle, claim, egress) {
      if (egress.rules === undefined || handle.network === undefined) return;
      const next = { ...claim, egress };
      if (claim.egress.rules === undefined) await identities.sendVariables(named, handle, next);
      await install(named, handle, next);
    },
  };
}
