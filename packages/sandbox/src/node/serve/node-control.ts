// Drains, readies and removes nodes: this one directly, others of its deployment through their records in etcd.
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { nodeControlOperations } from "@svc/contract/node-control.ts";
import type { Handlers } from "@svc/kit/serve.ts";
import type { Membership } from "../../cluster/join.ts";
import { nodeIDOf } from "../../cluster/node-id.ts";
import type { Drain } from "../watch/drain.ts";

export type NodeControlParts = { readonly home: string; readonly drain: Drain; readonly membership: Membership | undefined };

export function nodeControlHandlers({ home, drain, membership }: NodeControlParts): Handlers<typeof nodeControlOperations> {
  const isOwn = (nodeID: string) => nodeID === "self" || nodeID === nodeIDOf(home);
  const others = (nodeID: string) =>
    membership?.members ??
    fail(
      "NODE_NOT_FOUND",
      `node '${nodeID}' is not this one, which runs alone as '${nodeIDOf(home)}' (or 'self'): send the request to a node of its deployment, or to a gateway (--url)`,
    );

  return {
    async setNodeStatus({ nodeID, status }) {
      const isDraining = status === "draining";
      if (isOwn(nodeID)) {
        drain.set(isDraining);
        // Other nodes read the status in etcd; the node drains even if etcd cannot be reached.
        await membership?.members.setDraining(membership.nodeID, isDraining).catch((error: unknown) => {
          const { message } = asFailure(error);
          const done = isDraining ? "this node drains now and pauses what runs" : "this node takes sandboxes again";
          fail("ETCD_UNAVAILABLE", `${done}, but it could not be recorded in etcd: repeat this when etcd answers, or a restart undoes it (${message})`, {
            cause: error,
          });
        });
      } else await others(nodeID).setDraining(nodeID, isDraining);
    },
    getNodeDrain({ nodeID }) {
      if (!isOwn(nodeID))
        fail("NODE_NOT_FOUND", `node '${nodeID}' is not this one ('${nodeIDOf(home)}', or 'self'): use that node's own URL, or a gateway (--url)`);
      return { nodeID: nodeIDOf(home), ...drain.progress() };
    },
    async removeNode({ nodeID, dead }) {
      if (isOwn(nodeID) && membership === undefined)
        fail("INVALID_REQUEST", "this node runs alone: there is no deployment to remove it from; `svc down` stops it");
      if (isOwn(nodeID)) fail("INVALID_REQUEST", "a node cannot remove itself: stop it, then remove it through another node or a gateway");
      await others(nodeID).remove(nodeID, dead);
    },
  };
}
