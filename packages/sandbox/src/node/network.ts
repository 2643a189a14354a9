// PUT /sandboxes/{id}/network: replaces what a sandbox may reach; first in the kernel, then in its record.
import { fail } from "@svc/contract/failures.ts";
import type { EgressPolicy } from "../network/networks.ts";
import { type EgressInput, egressOf } from "./egress.ts";
import type { Node } from "./node.ts";

/**
 * In force for new and open connections when it returns; of a paused sandbox, when it goes on.
 * @throws INVALID_REQUEST, SANDBOX_NOT_FOUND, SANDBOX_CHANGING_STATE, TOO_MANY_REQUESTS; then the rules are the old ones.
 */
export async function setNetwork(node: Node, sandboxID: string, input: EgressInput): Promise<void> {
  const egress = egressOf(input);
  node.registry.owned(sandboxID); // what is not there is told at once, whatever waits
  await node.turns.run(sandboxID, () => replace(node, sandboxID, egress));
}

async function replace(node: Node, sandboxID: string, egress: EgressPolicy): Promise<void> {
  const { status } = node.registry.owned(sandboxID);
  if (status.state !== "running" && status.state !== "paused") {
    fail("SANDBOX_CHANGING_STATE", `sandbox '${sandboxID}' is ${status.state}: its network is set while it runs or is paused; ask again in a moment`);
  }
  // Without root there is no slot: such a sandbox has no way out, so that every rule is kept as it stands.
  const slot = status.state === "running" ? status.handle.network : undefined;
  if (slot !== undefined) await node.networks?.setPolicy(slot, egress);
  try {
    node.registry.move(sandboxID, { event: "egress", egress });
    const { allowInternet, allowOut, denyOut } = egress;
    node.tell("sandbox.network_changed", { sandboxID }, { allowInternet, allowOut: allowOut.length, denyOut: denyOut.length });
  } catch (error) {
    // Rules that no record holds would be gone after the next start: better the old ones at once.
    if (slot !== undefined) {
      await node.networks
        ?.setPolicy(slot, status.claim.egress)
        .catch((cause: unknown) => node.log.warn({ err: cause, sandboxID }, "the rules of a sandbox could not be put back; it has probably ended"));
    }
    throw error;
  }
}
