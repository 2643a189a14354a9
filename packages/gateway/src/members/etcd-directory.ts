// The nodes of a deployment according to etcd: members come and go with their records; while etcd is away, the last state read applies.
import { clusterKeys, type NodeRecord, nodeRecord, slotRecord } from "@svc/contract/cluster-records.ts";
import { sandboxRecord, storedSnapshot, storedTemplate } from "@svc/contract/shared-records.ts";
import { openEtcd } from "@svc/kit/etcd/client.ts";
import type { KeyValue } from "@svc/kit/etcd/wire.ts";
import type { Log } from "@svc/kit/log.ts";
import type { PeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { followRecords } from "./followed-records.ts";
import type { Member } from "./member.ts";
import type { Members } from "./members.ts";

export type EtcdDirectoryOptions = {
  readonly endpoints: readonly string[];
  readonly name: string;
  readonly certificates?: PeerCertificates | undefined;
  readonly members: Members;
  readonly log: Log;
};

export type EtcdDirectory = {
  /** Returns true if etcd's record says that the node serves: it was not stopped, removed or declared dead. */
  serves(nodeID: string): boolean;
  /** Returns true if etcd currently says so: what ran there is lost for good, and the node forgets its keys before it serves again. */
  isDead(member: Member): boolean;
  /** Returns the names of nodes that etcd reported as declared dead or removed from the deployment. */
  gone(): readonly string[];
  /** Returns true if etcd, read now, has the same nodes and the same dead ones as this gateway. @throws ETCD_UNAVAILABLE. */
  agrees(): Promise<boolean>;
  /** True if etcd has lost the record of the deployment: it was emptied, and no node has written the record again. */
  readonly isEmptied: boolean;
  /** True once etcd has been read. */
  readonly hasRead: boolean;
  /** False while etcd does not answer; joins and leaves are not seen then. */
  readonly isCurrent: boolean;
  /** Returns the node whose ids carry this slot if it was removed from the deployment. */
  removedNode(slot: number): string | undefined;
  close(): Promise<void>;
};

type Followed = { readonly member: Member; readonly url: string };

export function openEtcdDirectory({ endpoints, name, certificates, members, log }: EtcdDirectoryOptions): EtcdDirectory {
  const etcd = openEtcd({ endpoints, certificates });
  const keys = clusterKeys(name);
  const states = new Map<string, NodeRecord["state"]>();
  /** Followed nodes, by name. */
  const followed = new Map<string, Followed>();
  /** All nodes that have a record, including those that have never served. */
  const recorded = new Set<string>();
  const slots = new Map<number, string>();
  let hasRead = false;
  let isCurrent = false;

  function take(record: NodeRecord): void {
    const { nodeID, url, slot } = record;
    states.set(nodeID, record.state);
    const known = followed.get(nodeID);
    if (url === undefined) return;
    const address = url.replace(/\/$/, "");
    if (known?.url === address) return;
    if (known !== undefined) members.remove(known.member);
    followed.set(nodeID, { member: members.add({ url: address, slot, nodeID }), url: address });
    log.info({ node: nodeID, url: address, slot }, known === undefined ? "a node is part of the deployment" : "a node has another URL");
  }

  function drop(nodeID: string): void {
    states.delete(nodeID);
    const known = followed.get(nodeID);
    if (known === undefined) return;
    followed.delete(nodeID);
    members.remove(known.member);
    log.info({ node: nodeID, url: known.url }, "a node is not part of the deployment any more");
  }

  function takeSlot({ key, value }: KeyValue): void {
    try {
      slots.set(Number(key.slice(keys.slots.length)), slotRecord.parse(JSON.parse(value)).nodeID);
    } catch (error) {
      log.error({ err: error, key }, "a slot's record in etcd cannot be read");
    }
  }

  function parse({ key, value }: KeyValue): NodeRecord | undefined {
    try {
      return nodeRecord.parse(JSON.parse(value));
    } catch (error) {
      log.error({ err: error, key }, "a node's record in etcd cannot be read: the node is not followed");
      return undefined;
    }
  }

  const watch = etcd.watch(keys.nodes, {
    onAll(entries) {
      const records = entries.flatMap((entry) => parse(entry) ?? []);
      const there = new Set(records.map(({ nodeID }) => nodeID));
      recorded.clear();
      for (const { key } of entries) recorded.add(key.slice(keys.nodes.length));
      for (const nodeID of [...followed.keys(), ...states.keys()]) if (!there.has(nodeID)) drop(nodeID);
      for (const record of records) take(record);
      hasRead = true;
      isCurrent = true;
    },
    onEvents(events) {
      for (const event of events) {
        if (event.type === "delete") {
          recorded.delete(event.key.slice(keys.nodes.length));
          drop(event.key.slice(keys.nodes.length));
          continue;
        }
        recorded.add(event.key.slice(keys.nodes.length));
        const record = parse(event.entry);
        if (record !== undefined) take(record);
      }
    },
    onInterrupted(reason) {
      isCurrent = false;
      log.warn({ reason }, "etcd does not answer: nodes that join or leave are not seen, everything else continues");
    },
    onCurrent() {
      isCurrent = true;
    },
  });

  let hadDeployment = false;
  let isEmptied = false;
  function followDeployment(isThere: boolean): void {
    if (!isThere && hadDeployment && !isEmptied)
      log.error(
        "etcd has lost the records of this deployment: it was emptied or replaced. Nodes write theirs again as they start; restore a backup where nodes are lost",
      );
    if (isThere && isEmptied) log.info("etcd has a record of the deployment again");
    isEmptied = !isThere && hadDeployment;
    hadDeployment ||= isThere;
  }
  let lastDeployment: KeyValue | undefined;
  const deploymentWatch = etcd.watch(keys.deployment, {
    onAll(entries) {
      const found = entries.find(({ key }) => key === keys.deployment);
      // Nodes may have filled an emptied etcd before this gateway could look.
      if (found !== undefined && lastDeployment !== undefined && isAnother(found, lastDeployment)) followDeployment(false);
      followDeployment(found !== undefined);
      lastDeployment = found ?? lastDeployment;
    },
    onEvents(events) {
      for (const event of events) {
        followDeployment(event.type === "put");
        if (event.type === "put") lastDeployment = event.entry;
      }
    },
  });

  // Slots are assigned for good; none is ever freed.
  const slotWatch = etcd.watch(keys.slots, {
    onAll: (entries) => entries.forEach(takeSlot),
    onEvents(events) {
      for (const event of events) if (event.type === "put") takeSlot(event.entry);
    },
  });

  const { moved, stored } = members;
  const unread = (what: string) => `${what}'s record in etcd cannot be read: lists lack it while no node that has it answers`;
  const records = [
    followRecords({
      etcd,
      prefix: keys.sandboxes,
      shape: sandboxRecord,
      into: moved,
      unread: "the record of a sandbox in etcd cannot be read: requests go to the node that its id names",
      log,
    }),
    followRecords({ etcd, prefix: keys.snapshots, shape: storedSnapshot, into: stored.snapshots, unread: unread("a snapshot"), log }),
    followRecords({ etcd, prefix: keys.templates, shape: storedTemplate, into: stored.templates, unread: unread("a template"), log }),
  ];

  return {
    removedNode(slot) {
      const nodeID = slots.get(slot);
      return hasRead && nodeID !== undefined && !recorded.has(nodeID) ? nodeID : undefined;
    },
    isDead(member) {
      for (const [nodeID, each] of followed) if (each.member === member) return isCurrent && states.get(nodeID) === "dead";
      return false;
    },
    gone() {
      const removed = hasRead ? [...slots.values()].filter((nodeID) => !recorded.has(nodeID)) : [];
      return [...removed, ...[...states].flatMap(([nodeID, state]) => (state === "dead" ? [nodeID] : []))];
    },
    async agrees() {
      const records = (await etcd.list(keys.nodes)).entries.map((entry) => parse(entry));
      return records.every(
        (record) => record !== undefined && (states.get(record.nodeID) === "dead") === (record.state === "dead") && states.has(record.nodeID),
      );
    },
    serves: (nodeID) => states.get(nodeID) === "serving",
    get isEmptied() {
      return isEmptied;
    },
    get hasRead() {
      return hasRead;
    },
    get isCurrent() {
      return isCurrent;
    },
    async close() {
      await Promise.all([watch, deploymentWatch, slotWatch, ...records].map((each) => each.close()));
      await etcd.close();
    },
  };
}

/** Returns true if the record was created again rather than changed: revisions of an etcd only rise. */
function isAnother(found: KeyValue, last: KeyValue): boolean {
  return found.createRevision !== last.createRevision || (found.modRevision <= last.modRevision && found.value !== last.value);
}
