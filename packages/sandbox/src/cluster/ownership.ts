// The owner of each sandbox that other nodes can resume: one record in etcd per sandbox, changed by compare-and-set before anything of it starts.
import { randomUUID } from "node:crypto";
import { type clusterKeys, liveRecord, type NodeRecord, nodeRecord } from "@svc/contract/cluster-records.ts";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import type { ListedSandbox } from "@svc/contract/sandbox.ts";
import { type SharedSandbox, sandboxRecord } from "@svc/contract/shared-records.ts";
import type { Etcd } from "@svc/kit/etcd/client.ts";
import type { PeerClient } from "@svc/kit/peers/peer-client.ts";

/** Every method @throws ETCD_UNAVAILABLE; those that change a record of ours @throws SANDBOX_MOVED with `details.node` if another node took it. */
export interface Ownership {
  readonly nodeID: string;
  /** Reads all records once before this node serves, to learn which of its sandboxes other nodes have taken. */
  load(): Promise<ReadonlyMap<string, SharedSandbox>>;
  /** The sandboxes recorded as ours, as far as this process knows. */
  readonly mine: ReadonlySet<string>;
  /** The sandbox is complete in object storage under this name: other nodes may take it once this node does not serve, and lists show `listed`. */
  share(sandboxID: string, manifest: string, listed: ListedSandbox): Promise<void>;
  /** Other nodes may take the sandbox at once. */
  offer(sandboxID: string): Promise<void>;
  /** The sandbox is about to run here, so no other node may take it from now on. Asks etcd only if another node could take it. */
  keep(sandboxID: string): Promise<void>;
  /** Another node has the sandbox, so this node drops what it knows of its record. */
  left(sandboxID: string): void;
  /** The sandbox has ended. The record stays while a node that it was taken from has yet to learn that. */
  forget(sandboxID: string): Promise<void>;
  /** The sandbox was taken from this node while it did not serve, and this node has removed all that it had of it. */
  gaveUp(sandboxID: string): Promise<void>;
  /** Returns the node that owns the sandbox; undefined if no owner is on record. */
  ownerOf(sandboxID: string): Promise<string | undefined>;
  /** Returns the manifest to import if this node may take the sandbox. @throws SANDBOX_NOT_FOUND, NODE_LOST while its owner may serve. */
  takeable(sandboxID: string): Promise<string>;
  /** The sandbox is ours when this returns. @throws as `takeable`, and if the manifest is no longer the one that `takeable` returned. */
  take(sandboxID: string, manifest: string): Promise<void>;
  /**
   * Records the end of a sandbox that was not exported and whose node was declared dead or removed. That node starts nothing before it has
   * read this record, and then removes the sandbox. @throws NODE_LOST while the node may return with it, SANDBOX_CHANGING_STATE.
   */
  bury(sandboxID: string, deadNodeID: string): Promise<void>;
  /** Returns the other nodes that serve and do not drain. */
  others(): Promise<readonly NodeRecord[]>;
}

/** Bounds the retries when other nodes change a record between its read and its write. */
const ATTEMPTS = 20;

/** A node that does not answer within this time counts as down. */
const ANSWER_MS = 2_000;

/** A longer entry, because of its metadata, is left out of the record; lists read it from object storage. */
const MAX_LISTED_BYTES = 2048;

type Change = Pick<SharedSandbox, "nodeID" | "manifest" | "isOffered"> &
  Partial<Pick<SharedSandbox, "takenFrom" | "isOver" | "tenant">> & { readonly listed?: ListedSandbox | undefined };

/** `answers` returns true if a node at this URL serves, as far as this node can reach it. */
export function openOwnership(
  etcd: Pick<Etcd, "get" | "list" | "transact">,
  keys: ReturnType<typeof clusterKeys>,
  nodeID: string,
  answers: (url: string) => Promise<boolean> = answersBy(fetch),
): Ownership {
  const mine = new Set<string>();
  /** The manifests of sandboxes that other nodes could take; only their resume asks etcd. "" means that the record is not known for certain. */
  const shared = new Map<string, string>();
  const own = (manifest: string | undefined, isOffered = false): Change => ({ nodeID, manifest, isOffered });

  /** Writes the record that `next` returns, or nothing if it returns undefined. */
  async function change(sandboxID: string, next: (known: SharedSandbox | undefined) => Promise<Change | undefined> | Change | undefined): Promise<void> {
    const key = keys.sandbox(sandboxID);
    const writeID = randomUUID();
    for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
      const kept = await etcd.get(key);
      const known = kept === undefined ? undefined : read(kept.value);
      // An earlier attempt with unknown outcome has succeeded.
      if (known?.writeID === writeID) return;
      const changed = await next(known);
      if (changed === undefined) return;
      const value = JSON.stringify({ ...known, version: 1, sandboxID, ...changed, writeID });
      try {
        if ((await etcd.transact({ if: [{ key, modRevision: kept?.modRevision ?? 0n }], do: [{ put: key, value }] })).succeeded) return;
      } catch (error) {
        if (asFailure(error).details["outcome"] !== "unknown") throw error;
      }
    }
    fail("ETCD_UNAVAILABLE", `the record of sandbox '${sandboxID}' changed ${ATTEMPTS} times while this node tried to write it; try again`);
  }

  /** @throws SANDBOX_MOVED. */
  function mustBeOurs(sandboxID: string, known: SharedSandbox | undefined): void {
    if (known === undefined || known.nodeID === nodeID) return;
    shared.delete(sandboxID);
    mine.delete(sandboxID);
    throw movedTo(sandboxID, known.nodeID);
  }

  async function mustBeTakeable(sandboxID: string, known: SharedSandbox | undefined): Promise<string> {
    if (known?.manifest === undefined) fail("SANDBOX_NOT_FOUND", `sandbox '${sandboxID}' cannot be taken over: it was not exported`);
    if (known.nodeID === nodeID || known.isOffered) return known.manifest;
    const [owner, live] = await Promise.all([etcd.get(keys.node(known.nodeID)), etcd.get(keys.live(known.nodeID))]);
    if (owner === undefined || nodeRecord.parse(JSON.parse(owner.value)).state !== "serving") return known.manifest;
    // The sandbox runs nowhere, and its owner asks etcd before starting it, so a takeover is safe long before the owner is declared dead.
    const url = live === undefined ? undefined : liveRecord.parse(JSON.parse(live.value)).url;
    if (url === undefined || !(await answers(url))) return known.manifest;
    const why = `node ${known.nodeID} owns sandbox '${sandboxID}', answers, and was neither stopped nor declared dead`;
    throw new Failure("NODE_LOST", why, { details: { node: known.nodeID } });
  }

  return {
    nodeID,
    mine,
    async load() {
      const records: SharedSandbox[] = [];
      for (const { key, value } of (await etcd.list(keys.sandboxes)).entries) {
        const parsed = parse(value);
        if (parsed.success) records.push(parsed.data);
        // A record in a later format hides the owner, so the sandbox must not start here without asking etcd.
        else shared.set(key.slice(keys.sandboxes.length), "");
      }
      for (const { sandboxID, nodeID: owner, manifest, listed } of records) {
        if (owner !== nodeID) continue;
        mine.add(sandboxID);
        // A record that an earlier version wrote lacks `listed`; "" makes the next share write it again.
        if (manifest !== undefined) shared.set(sandboxID, listed === undefined ? "" : manifest);
      }
      return new Map(records.map((record) => [record.sandboxID, record]));
    },
    async share(sandboxID, manifest, listed) {
      if (shared.get(sandboxID) === manifest) return;
      // Noted before the write, because the outcome of the write may stay unknown.
      mine.add(sandboxID);
      shared.set(sandboxID, "");
      await change(sandboxID, (known) => {
        mustBeOurs(sandboxID, known);
        return { ...own(manifest), tenant: listed.tenant, listed: Buffer.byteLength(JSON.stringify(listed)) > MAX_LISTED_BYTES ? undefined : listed };
      });
      shared.set(sandboxID, manifest);
    },
    offer: (sandboxID) =>
      change(sandboxID, (known) => {
        mustBeOurs(sandboxID, known);
        return own(
          known?.manifest ?? fail("SANDBOX_CHANGING_STATE", `sandbox '${sandboxID}' is being exported by another request; try again in a moment`),
          true,
        );
      }),
    async keep(sandboxID) {
      if (!shared.has(sandboxID)) return;
      // From here on the record is unknown until it is written again.
      shared.set(sandboxID, "");
      // Written even if there is no record, so that an earlier write that is still in flight fails its comparison.
      await change(sandboxID, (known) => {
        mustBeOurs(sandboxID, known);
        return own(undefined);
      });
      shared.delete(sandboxID);
    },
    left(sandboxID) {
      mine.delete(sandboxID);
      shared.delete(sandboxID);
    },
    async forget(sandboxID) {
      if (!mine.has(sandboxID)) return;
      const kept = await etcd.get(keys.sandbox(sandboxID));
      const known = kept === undefined ? undefined : read(kept.value);
      if (known?.nodeID === nodeID && known.takenFrom.length > 0) {
        // Without this record, a node that returns would treat the copy on its disk as never taken.
        await change(sandboxID, (current) => (current?.nodeID === nodeID ? { ...own(undefined), listed: undefined, isOver: true } : undefined));
      } else if (kept !== undefined && known?.nodeID === nodeID) {
        const { succeeded } = await etcd.transact({ if: [{ key: kept.key, modRevision: kept.modRevision }], do: [{ delete: kept.key }] });
        if (!succeeded) fail("ETCD_UNAVAILABLE", `the record of sandbox '${sandboxID}' changed while it was being removed; try again`);
      }
      mine.delete(sandboxID);
      shared.delete(sandboxID);
    },
    async gaveUp(sandboxID) {
      const kept = await etcd.get(keys.sandbox(sandboxID));
      const known = kept === undefined ? undefined : read(kept.value);
      if (kept === undefined || known?.takenFrom.includes(nodeID) !== true) return;
      const takenFrom = known.takenFrom.filter((each) => each !== nodeID);
      const next = { put: kept.key, value: JSON.stringify({ ...known, takenFrom }) };
      // If the record changed meanwhile, the next start of this node does it.
      await etcd.transact({
        if: [{ key: kept.key, modRevision: kept.modRevision }],
        do: [known.isOver && takenFrom.length === 0 ? { delete: kept.key } : next],
      });
    },
    async ownerOf(sandboxID) {
      const kept = await etcd.get(keys.sandbox(sandboxID));
      return kept === undefined ? undefined : read(kept.value).nodeID;
    },
    async takeable(sandboxID) {
      const kept = await etcd.get(keys.sandbox(sandboxID));
      return mustBeTakeable(sandboxID, kept === undefined ? undefined : read(kept.value));
    },
    async take(sandboxID, manifest) {
      await change(sandboxID, async (known) => {
        const found = await mustBeTakeable(sandboxID, known);
        if (found !== manifest) fail("SANDBOX_CHANGING_STATE", `sandbox '${sandboxID}' was resumed and paused again in between; try again`);
        const before = known?.takenFrom ?? [];
        const isLeft = known === undefined || known.isOffered || known.nodeID === nodeID || before.includes(known.nodeID);
        return { ...own(manifest), takenFrom: (isLeft ? before : [...before, known.nodeID]).filter((each) => each !== nodeID) };
      });
      mine.add(sandboxID);
      shared.set(sandboxID, manifest);
    },
    async bury(sandboxID, deadNodeID) {
      const kept = await etcd.get(keys.node(deadNodeID));
      if (kept !== undefined && nodeRecord.parse(JSON.parse(kept.value)).state !== "dead")
        throw new Failure("NODE_LOST", `sandbox '${sandboxID}' waits for node ${deadNodeID}, which was not declared dead`, { details: { node: deadNodeID } });
      await change(sandboxID, (known) => {
        if (known?.isOver === true) return undefined;
        if (known !== undefined && (known.nodeID !== deadNodeID || known.manifest !== undefined))
          fail("SANDBOX_CHANGING_STATE", `sandbox '${sandboxID}' was exported or taken over in the meantime; try again`);
        return { ...own(undefined), listed: undefined, isOver: true, takenFrom: [deadNodeID] };
      });
    },
    async others() {
      const [nodes, lives] = await Promise.all([etcd.list(keys.nodes), etcd.list(keys.lives)]);
      const alive = new Set(lives.entries.map(({ key }) => key.slice(keys.lives.length)));
      return nodes.entries
        .flatMap(({ value }) => nodeRecord.safeParse(JSON.parse(value)).data ?? [])
        .filter((node) => node.nodeID !== nodeID && node.state === "serving" && !node.isDraining && node.url !== undefined && alive.has(node.nodeID));
    },
  };
}

export function answersBy(fetch: PeerClient["fetch"]) {
  return (url: string): Promise<boolean> =>
    fetch(`${url.replace(/\/$/, "")}/health`, { signal: AbortSignal.timeout(ANSWER_MS) }).then(
      () => true,
      () => false,
    );
}

export function movedTo(sandboxID: string, nodeID: string): Failure {
  return new Failure("SANDBOX_MOVED", `sandbox '${sandboxID}' moved to node ${nodeID}: send the request there, or to a gateway`, { details: { node: nodeID } });
}

const parse = (value: string) => sandboxRecord.safeParse(JSON.parse(value));

function read(value: string): SharedSandbox {
  const { data, error } = parse(value);
  if (data !== undefined) return data;
  return fail("ETCD_REFUSED", `a sandbox's record in etcd is of a version that this node does not know: ${error?.issues[0]?.message ?? ""}; upgrade this node`);
}
