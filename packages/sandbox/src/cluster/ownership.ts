// Who owns a sandbox that other nodes can resume: one record of etcd for each, changed by compare-and-set before anything of it starts.
import { randomUUID } from "node:crypto";
import { type clusterKeys, liveRecord, type NodeRecord, nodeRecord } from "@svc/contract/cluster-records.ts";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import type { ListedSandbox } from "@svc/contract/sandbox.ts";
import { type SharedSandbox, sandboxRecord } from "@svc/contract/shared-records.ts";
import type { Etcd } from "@svc/kit/etcd/client.ts";

/** Each @throws ETCD_UNAVAILABLE; those that change one of ours SANDBOX_MOVED where another node has taken it, with `details.node`. */
export interface Ownership {
  readonly nodeID: string;
  /** All records, once, before this node serves: which of its sandboxes are another's by now. */
  load(): Promise<ReadonlyMap<string, SharedSandbox>>;
  /** What is on record as ours, as far as this process knows. */
  readonly mine: ReadonlySet<string>;
  /** It is whole in object storage under this name: others may take it once this node does not serve, and list it as `listed` says. */
  share(sandboxID: string, manifest: string, listed: ListedSandbox): Promise<void>;
  /** Others may take it at once. */
  offer(sandboxID: string): Promise<void>;
  /** It is about to run here: nobody takes it from now on. Asks etcd only where others could. */
  keep(sandboxID: string): Promise<void>;
  /** Another node has it: nothing of it is ours. */
  left(sandboxID: string): void;
  /** It has ended. Nodes that it was taken from find that on record when they are back. */
  forget(sandboxID: string): Promise<void>;
  /** It was taken from this node while that did not serve, and nothing of it is here any more. */
  gaveUp(sandboxID: string): Promise<void>;
  /** The node that owns it; undefined where none is on record. */
  ownerOf(sandboxID: string): Promise<string | undefined>;
  /** The name by which it is imported, where this node may take it. @throws SANDBOX_NOT_FOUND, NODE_LOST while its owner may serve. */
  takeable(sandboxID: string): Promise<string>;
  /** It is ours when this returns. @throws as `takeable`, and where it is not any more what `takeable` said. */
  take(sandboxID: string, manifest: string): Promise<void>;
  /**
   * Records the end of a sandbox that was not exported and whose node was declared dead or removed. That node starts nothing before it has
   * read this record, and then removes the sandbox. @throws NODE_LOST while the node may return with it, SANDBOX_CHANGING_STATE.
   */
  bury(sandboxID: string, deadNodeID: string): Promise<void>;
  /** Nodes that serve and do not drain, but this one. */
  others(): Promise<readonly NodeRecord[]>;
}

/** How often others may change a record while it is to be written. */
const ATTEMPTS = 20;

/** A node that does not answer for so long is taken for away. */
const ANSWER_MS = 2_000;

/** Longer ones, for their metadata, are read from object storage where they are listed. */
const MAX_LISTED_BYTES = 2048;

type Change = Pick<SharedSandbox, "nodeID" | "manifest" | "isOffered"> &
  Partial<Pick<SharedSandbox, "takenFrom" | "isOver">> & { readonly listed?: ListedSandbox | undefined };

/** `answers`: whether a node at this URL serves, as far as can be seen from here. */
export function openOwnership(
  etcd: Pick<Etcd, "get" | "list" | "transact">,
  keys: ReturnType<typeof clusterKeys>,
  nodeID: string,
  answers: (url: string) => Promise<boolean> = answersAt,
): Ownership {
  const mine = new Set<string>();
  /** Those that others could take, by what of them is shared: the only ones for which a resume asks etcd. */
  const shared = new Map<string, string>();
  const own = (manifest: string | undefined, isOffered = false): Change => ({ nodeID, manifest, isOffered });

  /** Writes what `next` makes of the record, or nothing where it says undefined. */
  async function change(sandboxID: string, next: (known: SharedSandbox | undefined) => Promise<Change | undefined> | Change | undefined): Promise<void> {
    const key = keys.sandbox(sandboxID);
    const writeID = randomUUID();
    for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
      const kept = await etcd.get(key);
      const known = kept === undefined ? undefined : read(kept.value);
      // An attempt whose outcome was not known had been made.
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
    // It runs nowhere, and its owner asks etcd before it starts it: suspicion is enough, long before the node is declared dead.
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
        // Of a later version: whose it is is not known, so that it starts nowhere here.
        else shared.set(key.slice(keys.sandboxes.length), "");
      }
      for (const { sandboxID, nodeID: owner, manifest, listed } of records) {
        if (owner !== nodeID) continue;
        mine.add(sandboxID);
        // One that an earlier version wrote is written again with what lists show.
        if (manifest !== undefined) shared.set(sandboxID, listed === undefined ? "" : manifest);
      }
      return new Map(records.map((record) => [record.sandboxID, record]));
    },
    async share(sandboxID, manifest, listed) {
      if (shared.get(sandboxID) === manifest) return;
      // Before it is written: from then on its outcome may be unknown.
      mine.add(sandboxID);
      shared.set(sandboxID, "");
      await change(sandboxID, (known) => {
        mustBeOurs(sandboxID, known);
        return { ...own(manifest), listed: Buffer.byteLength(JSON.stringify(listed)) > MAX_LISTED_BYTES ? undefined : listed };
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
      // From here on what is on record is not known before it is written again.
      shared.set(sandboxID, "");
      // Also where none is on record: a write that is still on its way must find that it has changed.
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
        // Without it, a node that returns would take the copy on its disk for one that was never taken.
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
      // Where it changed meanwhile, the next start does it.
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

async function answersAt(url: string): Promise<boolean> {
  return fetch(`${url.replace(/\/$/, "")}/health`, { signal: AbortSignal.timeout(ANSWER_MS) }).then(
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
