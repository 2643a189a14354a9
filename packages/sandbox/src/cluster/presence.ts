// A node's presence in its deployment: a record under a lease, written again after the lease is lost, and given up once the node is declared dead.
import { setTimeout as sleep } from "node:timers/promises";
import {
  type clusterKeys,
  deploymentRecord,
  type Fingerprints,
  type LiveRecord,
  liveRecord,
  type NodeRecord,
  nodeRecord,
} from "@svc/contract/cluster-records.ts";
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { Etcd } from "@svc/kit/etcd/client.ts";
import type { Lease } from "@svc/kit/etcd/lease.ts";
import type { Log } from "@svc/kit/log.ts";
import { compareAndSet, type Entered } from "./enter.ts";

export type PresenceParts = {
  readonly etcd: Etcd;
  readonly keys: ReturnType<typeof clusterKeys>;
  readonly leaseSeconds: number;
  readonly fingerprints: Fingerprints;
  readonly homeIdentity: string;
  readonly deploymentID: string;
  readonly log: Log;
};

/** Why this generation is over. `emptied` means that etcd has lost the deployment's records, or has those of another deployment. */
export type Fence = { readonly kind: "dead" | "removed" | "replaced" | "emptied"; readonly reason: string };

export interface Presence {
  readonly record: NodeRecord;
  /** Returns true if etcd certainly has this node's lease. */
  isHeld(): boolean;
  /** Calls the listener at once, and whenever an operator changes the state. */
  onDraining(listener: (isDraining: boolean) => void): void;
  /** Publishes the URL at which the node serves, as soon as etcd answers. */
  serve(url: string): void;
  /** Resolves when this generation is over. */
  readonly fenced: Promise<Fence>;
  /** With `isStopping` the record says that the node stopped, so that it is not declared dead. */
  close(isStopping: boolean): Promise<void>;
}

const RETRY_MS = 500;
/** A stop must not take longer because etcd is down. */
const LEAVE_MS = 2_000;

/** @throws SETTING_INVALID if a node that joined earlier has another key or seed. */
export async function openPresence(parts: PresenceParts, entered: Entered): Promise<Presence> {
  const { etcd, keys, leaseSeconds, fingerprints, log } = parts;
  const { nodeID } = entered.record;
  const fence = Promise.withResolvers<Fence>();
  let { record, modRevision } = entered;
  let lease: Lease | undefined;
  let isClosed = false;
  let onDraining: (isDraining: boolean) => void = () => {};
  let isFenced = false;

  function live(): LiveRecord {
    const { generation, url } = record;
    return { version: 1, nodeID, generation, home: parts.homeIdentity, fingerprints, url };
  }
  function giveUp(kind: Fence["kind"], reason: string): void {
    isFenced = true;
    fence.resolve({ kind, reason });
  }
  /** Distinguishes a removed record from an emptied etcd, because an operator has to react differently. */
  async function recordIsGone(): Promise<void> {
    const [own, kept] = await Promise.all([etcd.get(keys.node(nodeID)), etcd.get(keys.deployment)]);
    if (own !== undefined) return take(own.value, own.modRevision);
    const { data } = deploymentRecord.safeParse(kept === undefined ? undefined : JSON.parse(kept.value));
    if (data?.deploymentID === parts.deploymentID) giveUp("removed", "an operator removed it from the deployment");
    else if (kept === undefined) giveUp("emptied", `etcd has no record of deployment ${parts.deploymentID} any more`);
    else giveUp("emptied", `etcd has the records of another deployment, ${data?.deploymentID ?? "which cannot be read"}, in place of ${parts.deploymentID}`);
  }
  /** Applies a change by an operator who drains the node, or by the node that declared it dead. */
  function take(text: string | undefined, at: bigint): void {
    if (text === undefined && !isClosed && !isFenced) {
      // The revisions of an emptied etcd start at one, so a deletion is not compared with the known revision.
      void untilDone(() => recordIsGone().then(() => true));
      return;
    }
    if (at <= modRevision || isClosed) return;
    if (text === undefined) return;
    const found = nodeRecord.parse(JSON.parse(text));
    modRevision = at;
    if (found.generation !== record.generation) giveUp("replaced", `another process began generation ${found.generation} of it`);
    else if (found.state === "dead") giveUp("dead", found.reason ?? "no reason was given");
    else {
      const isChanged = found.isDraining !== record.isDraining;
      record = found;
      if (isChanged) onDraining(record.isDraining);
    }
  }
  async function look(): Promise<void> {
    const found = await etcd.get(keys.node(nodeID));
    if (found === undefined) await recordIsGone();
    else take(found.value, found.modRevision);
  }

  async function register(): Promise<void> {
    const next = await etcd.lease(leaseSeconds, (reason) => {
      log.warn({ reason }, "this node's lease in etcd expired; the node continues, and registers again as soon as etcd answers");
      void again();
    });
    // The comparison keeps a record that says that the node is dead.
    const { succeeded } = await etcd.transact({
      if: [{ key: keys.node(nodeID), modRevision }],
      do: [{ put: keys.live(nodeID), value: JSON.stringify(live()), leaseID: next.id }],
    });
    if (succeeded) lease = next;
    else {
      await next.release();
      await look();
      if (!isFenced) fail("ETCD_UNAVAILABLE", "the node's record changed while it registered");
    }
  }
  async function untilDone(work: () => Promise<boolean>): Promise<void> {
    while (!isClosed && !isFenced) {
      try {
        if (await work()) return;
      } catch (error) {
        log.debug({ err: error }, "etcd did not take what this node has to say");
        await sleep(RETRY_MS);
      }
    }
  }
  function again(): Promise<void> {
    lease = undefined;
    return untilDone(async () => {
      await register();
      if (!isFenced) log.info("this node is registered in etcd again");
      return true;
    });
  }

  await register();
  await refuseStrangers(parts, nodeID).catch(async (error: unknown) => {
    isClosed = true;
    await lease?.release();
    await compareAndSet(parts, modRevision, { ...record, state: "stopped", changedAtMs: Date.now() }).catch(() => undefined);
    throw error;
  });
  const watch = etcd.watch(keys.node(nodeID), {
    fromRevision: modRevision,
    onAll(entries, revision) {
      const own = entries.find(({ key }) => key === keys.node(nodeID));
      take(own?.value, own?.modRevision ?? revision);
    },
    onEvents(events) {
      for (const event of events) {
        if (event.key !== keys.node(nodeID)) continue;
        if (event.type === "put") take(event.entry.value, event.entry.modRevision);
        else take(undefined, event.modRevision);
      }
    },
  });

  return {
    get record() {
      return record;
    },
    isHeld: () => lease?.isHeld() === true,
    fenced: fence.promise,
    onDraining(listener) {
      onDraining = listener;
      listener(record.isDraining);
    },
    serve(url) {
      void untilDone(async () => {
        // The comparison keeps a drain that was written in between.
        if (record.url !== url) {
          const at = await compareAndSet(parts, modRevision, { ...record, url, changedAtMs: Date.now() });
          if (at === undefined) return look().then(() => false);
          record = { ...record, url };
          modRevision = at;
        }
        // Without a lease, the next registration publishes the URL.
        if (lease !== undefined) await etcd.put(keys.live(nodeID), JSON.stringify(live()), lease.id);
        return true;
      });
    },
    async close(isStopping) {
      isClosed = true;
      await watch.close();
      if (!isStopping || isFenced) return;
      const leave = async () => {
        await compareAndSet(parts, modRevision, { ...record, state: "stopped", changedAtMs: Date.now() });
        await lease?.release();
      };
      try {
        await Promise.race([leave(), sleep(LEAVE_MS, undefined, { ref: false }).then(() => fail("TIMED_OUT", `etcd did not answer within ${LEAVE_MS} ms`))]);
      } catch (error) {
        log.warn({ reason: asFailure(error).message }, "etcd could not record that this node stopped: the node may be declared dead when its lease expires");
      }
    },
  };
}

/** If the secrets of two nodes differ, the node that joined later is refused. */
async function refuseStrangers({ etcd, keys, fingerprints }: PresenceParts, nodeID: string): Promise<void> {
  const { entries } = await etcd.list(keys.lives);
  const own = entries.find(({ key }) => key === keys.live(nodeID));
  for (const { key, value, createRevision } of entries) {
    if (own === undefined || key === own.key || createRevision > own.createRevision) continue;
    const other = liveRecord.parse(JSON.parse(value));
    const where = `node ${other.nodeID}${other.url === undefined ? "" : ` at ${other.url}`}`;
    const differs = (what: string, mine: string, theirs: string, hint: string) =>
      fail(
        "SETTING_INVALID",
        `the ${what} of this node (fingerprint ${mine}) is not that of ${where} (fingerprint ${theirs}): give all nodes of the deployment the same one with ${hint}; to change it, stop all of them first`,
      );
    if (other.fingerprints.apiKey !== fingerprints.apiKey) differs("API key", fingerprints.apiKey, other.fingerprints.apiKey, "SVC_API_KEY");
    if (other.fingerprints.seed !== fingerprints.seed) differs("token seed", fingerprints.seed, other.fingerprints.seed, "SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED");
  }
}
