// Operators' changes to the records of a deployment's nodes (drain, ready, remove), each by compare-and-set.
import { type clusterKeys, liveRecord, type NodeRecord, nodeRecord } from "@svc/contract/cluster-records.ts";
import { fail } from "@svc/contract/failures.ts";
import type { Etcd } from "@svc/kit/etcd/client.ts";
import { compareAndSet } from "./enter.ts";

export interface Members {
  /** Returns the URL of a node that has its lease. */
  urlOf(nodeID: string): Promise<string | undefined>;
  /** The node applies the change when its watch reports it. @throws NODE_NOT_FOUND. */
  setDraining(nodeID: string, isDraining: boolean): Promise<void>;
  /**
   * Removes a stopped node from the deployment. With `isDead` also a serving one, because its machine is lost: the node is fenced, and its
   * sandboxes end when it returns. @throws NODE_NOT_FOUND, INVALID_REQUEST for a node that serves.
   */
  remove(nodeID: string, isDead: boolean): Promise<void>;
}

const ATTEMPTS = 20;

export function openMembers(etcd: Pick<Etcd, "get" | "transact">, keys: ReturnType<typeof clusterKeys>): Members {
  /** Retries until the record has not changed between the read and the write. */
  async function change(nodeID: string, apply: (record: NodeRecord, modRevision: bigint) => Promise<boolean>): Promise<void> {
    for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
      const kept = await etcd.get(keys.node(nodeID));
      if (kept === undefined) fail("NODE_NOT_FOUND", `node '${nodeID}' is not a member of this deployment; \`svc nodes list\` lists them`);
      if (await apply(nodeRecord.parse(JSON.parse(kept.value)), kept.modRevision)) return;
    }
    fail("ETCD_UNAVAILABLE", `the record of node '${nodeID}' changed ${ATTEMPTS} times while this node tried to write it; try again`);
  }

  return {
    async urlOf(nodeID) {
      const live = await etcd.get(keys.live(nodeID));
      return live === undefined ? undefined : liveRecord.parse(JSON.parse(live.value)).url;
    },
    setDraining: (nodeID, isDraining) =>
      change(nodeID, async (record, modRevision) => {
        if (record.isDraining === isDraining) return true;
        return (await compareAndSet({ etcd, keys }, modRevision, { ...record, isDraining, changedAtMs: Date.now() })) !== undefined;
      }),
    remove: (nodeID, isDead) =>
      change(nodeID, async (record, modRevision) => {
        const live = await etcd.get(keys.live(nodeID));
        if (!isDead && record.state === "serving") {
          const where = live === undefined ? record.url : liveRecord.parse(JSON.parse(live.value)).url;
          const at = where === undefined ? "" : ` at ${where}`;
          // A killed process looks like a serving one until its lease expires.
          const how =
            live === undefined
              ? `node '${nodeID}'${at} ended without a word, and may return: start it again and stop it`
              : `node '${nodeID}' serves${at}, or was killed a moment ago: drain it and stop it first`;
          fail("INVALID_REQUEST", `${how}; if its machine is lost, remove it with --dead, which gives up its running sandboxes`);
        }
        const { succeeded } = await etcd.transact({
          if: [{ key: keys.node(nodeID), modRevision }],
          do: [{ delete: keys.node(nodeID) }, { delete: keys.live(nodeID) }],
        });
        return succeeded;
      }),
  };
}
