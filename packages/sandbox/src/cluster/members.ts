// The records of a deployment's nodes as operators change them: drain, ready, remove; each a compare-and-set.
import { type clusterKeys, liveRecord, type NodeRecord, nodeRecord } from "@svc/contract/cluster-records.ts";
import { fail } from "@svc/contract/failures.ts";
import type { Etcd } from "@svc/kit/etcd/client.ts";
import { compareAndSet } from "./enter.ts";

export interface Members {
  /** Where a node is reached that has its lease. */
  urlOf(nodeID: string): Promise<string | undefined>;
  /** The node follows as soon as it sees it. @throws NODE_NOT_FOUND. */
  setDraining(nodeID: string, isDraining: boolean): Promise<void>;
  /**
   * Takes a stopped node off the deployment. `isDead`: one that serves too, because its machine is lost: it is fenced, and what ran on
   * it ends when it returns. @throws NODE_NOT_FOUND, INVALID_REQUEST for one that serves.
   */
  remove(nodeID: string, isDead: boolean): Promise<void>;
}

const ATTEMPTS = 20;

export function openMembers(etcd: Pick<Etcd, "get" | "transact">, keys: ReturnType<typeof clusterKeys>): Members {
  /** Tries until nobody else changed the record in between. */
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
          // Until its lease is over, a process that was killed looks like one that serves.
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
