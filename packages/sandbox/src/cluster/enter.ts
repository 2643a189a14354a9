// A node enters its deployment by compare-and-set: it gets a slot of its own for good, and a generation above all its earlier ones.

import { statSync } from "node:fs";
import { hostname } from "node:os";
import { type clusterKeys, liveRecord, MAX_SLOTS, type NodeRecord, nodeRecord, slotRecord } from "@svc/contract/cluster-records.ts";
import { fail } from "@svc/contract/failures.ts";
import type { Etcd } from "@svc/kit/etcd/client.ts";
import { isAbsent } from "@svc/kit/etcd/transaction.ts";
import { readMembership, writeMembership } from "./membership-file.ts";

export type EnterParts = {
  readonly etcd: Pick<Etcd, "get" | "transact">;
  readonly keys: ReturnType<typeof clusterKeys>;
  readonly home: string;
  readonly nodeID: string;
  readonly deploymentID: string;
};

export type Entered = { readonly record: NodeRecord; readonly modRevision: bigint; readonly isLost: boolean };

const ATTEMPTS = 50;

/** Identifies the home and its host. The lock of a home ensures that no two processes have the same identity. */
export function homeIdentity(home: string): string {
  const { dev, ino } = statSync(home, { bigint: true });
  return `${hostname()}:${home}:${dev}-${ino}`;
}

/** @throws SETTING_INVALID if another home has this node's name; ETCD_UNAVAILABLE. */
export async function enter(parts: EnterParts): Promise<Entered> {
  // I35, I36
  const { etcd, keys, home, nodeID, deploymentID } = parts;
  const remembered = readMembership(home);
  const known = remembered?.deploymentID === deploymentID ? remembered : undefined;
  for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
    const [kept, live] = await Promise.all([etcd.get(keys.node(nodeID)), etcd.get(keys.live(nodeID))]);
    refuseTwin(parts, live?.value);
    if (kept === undefined) {
      const first = await begin(parts, remembered?.slot, (known?.generation ?? 0) + 1);
      if (first === undefined) continue;
      // A home that was a member but has no record was removed, so its earlier sandboxes were given up.
      const isLost = known !== undefined;
      writeMembership(home, { version: 1, deploymentID, slot: first.record.slot, generation: first.record.generation, isLost });
      return { ...first, isLost };
    }
    const before = nodeRecord.parse(JSON.parse(kept.value));
    const isLost = before.state === "dead" || known?.isLost === true;
    const record: NodeRecord = { ...before, generation: before.generation + 1, state: "serving", changedAtMs: Date.now(), reason: undefined };
    // Written before the record says that the node serves: a kill in between must not make lost sandboxes look alive.
    writeMembership(home, { version: 1, deploymentID, slot: record.slot, generation: record.generation, isLost });
    const modRevision = await compareAndSet(parts, kept.modRevision, record);
    if (modRevision !== undefined) return { record, modRevision, isLost };
  }
  return fail("ETCD_REFUSED", `the record of node ${nodeID} changed ${ATTEMPTS} times while this node tried to take it; start the node again`);
}

/** Returns the revision of the write, or undefined if the record had changed meanwhile. */
export async function compareAndSet({ etcd, keys }: Pick<EnterParts, "etcd" | "keys">, modRevision: bigint, record: NodeRecord): Promise<bigint | undefined> {
  const key = keys.node(record.nodeID);
  const { succeeded, revision } = await etcd.transact({ if: [{ key, modRevision }], do: [{ put: key, value: JSON.stringify(record) }] });
  return succeeded ? revision : undefined;
}

/** Writes the first record of this node, with its former slot or the next unused one. */
async function begin({ etcd, keys, nodeID }: EnterParts, ownSlot: number | undefined, generation: number): Promise<Omit<Entered, "isLost"> | undefined> {
  const used = await etcd.get(keys.slotsUsed);
  const next = Number(used?.value ?? 0);
  const owner = ownSlot === undefined ? undefined : await etcd.get(keys.slot(ownSlot));
  const isOwn = owner !== undefined && slotRecord.parse(JSON.parse(owner.value)).nodeID === nodeID;
  // The node keeps the slot that its sandbox ids carry, even if a new etcd does not know it.
  const slot = ownSlot !== undefined && (isOwn || owner === undefined) ? ownSlot : next;
  if (slot >= MAX_SLOTS) fail("CAPACITY_EXHAUSTED", `all ${MAX_SLOTS} slots of this deployment are taken; start a new deployment with another cluster.name`);
  const record: NodeRecord = { version: 1, nodeID, slot, generation, state: "serving", isDraining: false, changedAtMs: Date.now() };
  const taken = { put: keys.node(nodeID), value: JSON.stringify(record) };
  const { succeeded, revision } = await etcd.transact(
    isOwn
      ? { if: [isAbsent(keys.node(nodeID))], do: [taken] }
      : {
          if: [isAbsent(keys.node(nodeID)), isAbsent(keys.slot(slot)), { key: keys.slotsUsed, modRevision: used?.modRevision ?? 0n }],
          do: [
            taken,
            { put: keys.slot(slot), value: JSON.stringify({ version: 1, nodeID }) },
            { put: keys.slotsUsed, value: String(Math.max(next, slot + 1)) },
          ],
        },
  );
  return succeeded ? { record, modRevision: revision } : undefined;
}

function refuseTwin({ home, nodeID }: EnterParts, live: string | undefined): void {
  if (live === undefined) return;
  const other = liveRecord.parse(JSON.parse(live));
  // With the same home, the other process has ended, since this one has the home's lock.
  if (other.home === homeIdentity(home)) return;
  fail(
    "SETTING_INVALID",
    `node ${nodeID} is already running, from ${other.home}: two homes have its name, for instance because one is a copy; remove ${home}/node-id to give this one a new name, or start it once the other's lease has expired`,
  );
}
