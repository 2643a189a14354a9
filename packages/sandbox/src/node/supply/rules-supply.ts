// Supplies hosts with rules: certificates, and the headers of a sandbox with the values of secrets and its identity tokens.
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Failure, fail } from "@svc/contract/failures.ts";
import type { NetworkSlot } from "../../network/networks.ts";
import type { RulesSupply } from "../../network/open-intercept.ts";
import type { Registry } from "../../records/registry.ts";
import type { SandboxRecord } from "../../records/state.ts";
import type { Secrets } from "../../secrets/open-secrets.ts";

/** A sandbox that resumes may send requests shortly before its record says that it runs. */
const RECORD_WAIT_MS = 10_000;
const RECORD_POLL_MS = 20;

export function rulesSupply(secrets: Secrets, registry: Pick<Registry, "all">, caFile: string): RulesSupply {
  function claimOn(slot: NetworkSlot) {
    for (const { sandboxID, status } of registry.all()) {
      if (!("handle" in status) || status.handle?.network?.netns !== slot.netns) continue;
      const claim = "claim" in status ? status.claim : undefined;
      if (claim !== undefined) return { sandboxID, claim };
    }
    return undefined;
  }

  return {
    authorities: authoritiesOf(caFile),
    certificate: (name) => secrets.authority().issue(name),
    proxyPassword: (sealed) => secrets.unsealPassword(sealed),
    async headers(slot, templates) {
      const begin = performance.now();
      for (;;) {
        const found = claimOn(slot);
        if (found !== undefined) return secrets.fill(templates, { sandboxID: found.sandboxID, tenant: found.claim.tenant, tokens: found.claim.tokens ?? {} });
        if (performance.now() - begin > RECORD_WAIT_MS) throw new Failure("SANDBOX_CHANGING_STATE", "the sandbox does not run yet");
        await sleep(RECORD_POLL_MS);
      }
    },
  };
}

/** @throws SETTING_INVALID if the file is missing or has no certificate. */
function authoritiesOf(path: string): string {
  if (path === "") return "";
  let text = "";
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    fail("SETTING_INVALID", `setting egress.ca_file: '${path}' cannot be read: ${(error as Error).message}`, { cause: error });
  }
  if (!text.includes("-----BEGIN CERTIFICATE-----")) fail("SETTING_INVALID", `setting egress.ca_file: '${path}' has no certificate; expected PEM`);
  return text;
}

export const tokenNames = ({ status }: Pick<SandboxRecord, "status">): string[] => ("claim" in status ? Object.keys(status.claim?.tokens ?? {}) : []);
