// PUT /sandboxes/{id}/network: replaces a sandbox's egress policy, first in the kernel, then in its record.
import { fail } from "@svc/contract/failures.ts";
import type { KeyedLock } from "@svc/kit/keyed-lock.ts";
import type { Log } from "@svc/kit/log.ts";
import type { EgressPolicy } from "../../egress/policy.ts";
import { type EgressInput, egressOf } from "../../egress/rules.ts";
import type { Networks } from "../../network/networks.ts";
import type { Report } from "../../observe/open-observe.ts";
import type { Registry } from "../../records/registry.ts";
import type { Secrets } from "../../secrets/open-secrets.ts";
import { tokenNames } from "../supply/rules-supply.ts";
import type { Trust } from "../supply/trust.ts";

export type SetNetworkParts = {
  readonly lock: KeyedLock;
  readonly registry: Pick<Registry, "owned" | "move">;
  /** Withdraws a paused sandbox's export: another node must not resume it with the old rules. */
  readonly withdraw: (sandboxID: string) => Promise<void>;
  readonly networks: Pick<Networks, "setPolicy" | "admitProxy"> | undefined;
  readonly secrets: Pick<Secrets, "sealPassword">;
  readonly trust: Pick<Trust, "add">;
  readonly report: Report;
  readonly log: Log;
};

/**
 * The rules apply to new and open connections when it returns; to a paused sandbox, when it is resumed.
 * @throws INVALID_REQUEST, SANDBOX_NOT_FOUND, SANDBOX_CHANGING_STATE, TOO_MANY_REQUESTS; the old rules then stay.
 */
export type SetNetwork = (sandboxID: string, input: EgressInput) => Promise<void>;

export function openSetNetwork(parts: SetNetworkParts): SetNetwork {
  return async (sandboxID, input) => {
    // An unknown id is refused at once, without waiting for the lock.
    const egress = egressOf(input, { tokens: tokenNames(parts.registry.owned(sandboxID)), seal: parts.secrets.sealPassword });
    if (egress.proxy !== undefined) await parts.networks?.admitProxy(egress.proxy);
    await parts.lock.run(sandboxID, () => replace(parts, sandboxID, egress));
  };
}

async function replace({ registry, withdraw, networks, trust, report, log }: SetNetworkParts, sandboxID: string, egress: EgressPolicy): Promise<void> {
  const record = registry.owned(sandboxID);
  const { status } = record;
  if (status.state !== "running" && status.state !== "paused") {
    fail(
      "SANDBOX_CHANGING_STATE",
      `sandbox '${sandboxID}' is ${status.state}: its network rules can be set while it is running or paused; try again in a moment`,
    );
  }
  // Without root there is no slot and no way out of the sandbox, so the rules are only recorded.
  const slot = status.state === "running" ? status.handle.network : undefined;
  // Programs must trust the authority by the time that their connections meet it.
  if (status.state === "running") await trust.add(record, status.handle, status.claim, egress);
  // I14
  if (slot !== undefined) await networks?.setPolicy(slot, egress);
  if (status.state === "paused") await withdraw(sandboxID);
  try {
    registry.move(sandboxID, { event: "egress", egress });
    const { allowInternet, allowOut, denyOut, rules = {}, proxy } = egress;
    report(
      "sandbox.network_changed",
      { sandboxID },
      {
        allowInternet,
        allowOut: allowOut.length,
        denyOut: denyOut.length,
        rules: Object.keys(rules).length,
        ...(proxy === undefined ? {} : { egressProxy: proxy.address }),
      },
    );
  } catch (error) {
    // Rules that are not in the record would be lost at the next start, so the old ones are restored now.
    if (slot !== undefined) {
      await networks
        ?.setPolicy(slot, status.claim.egress)
        .catch((cause: unknown) => log.warn({ err: cause, sandboxID }, "the rules of a sandbox could not be restored; it has probably ended"));
    }
    throw error;
  }
}
