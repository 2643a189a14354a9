// What nodes and gateways of a deployment keep in etcd, by key; and the slot of its node that a sandbox's id carries.
import { z } from "zod";

// svc/NAME/deployment          the deployment: its id, and the secret that all nodes share
// svc/NAME/nodes/NODEID        a member, until it is removed; each change is a compare-and-set
// svc/NAME/live/NODEID         a process of it that runs; under a lease
// svc/NAME/slots/SLOT          whose ids carry this slot; never given to another
// svc/NAME/slots-used          how many there are; the next one is this
// svc/NAME/init-keys/PUBLIC    a key that envd of some sandbox obeys, sealed under the deployment secret
// svc/NAME/sandboxes/ID        who owns a sandbox that other nodes can resume, or that moved
// svc/NAME/snapshots/ID        a snapshot that is whole in object storage, as lists show it
// svc/NAME/templates/ID        the same of a template of which a build is there

// Nodes and gateways of two versions share these. A later version only adds members, which an earlier one keeps when it writes a record;
// `version` rises where that will not do, and then those that do not know it leave the record alone.

export const clusterKeys = (name: string) => {
  const base = `svc/${name}/`;
  return {
    deployment: `${base}deployment`,
    nodes: `${base}nodes/`,
    node: (nodeID: string) => `${base}nodes/${nodeID}`,
    lives: `${base}live/`,
    live: (nodeID: string) => `${base}live/${nodeID}`,
    slots: `${base}slots/`,
    slot: (slot: number) => `${base}slots/${slot}`,
    slotsUsed: `${base}slots-used`,
    initKeys: `${base}init-keys/`,
    initKey: (publicKeyBase64url: string) => `${base}init-keys/${publicKeyBase64url}`,
    sandboxes: `${base}sandboxes/`,
    sandbox: (sandboxID: string) => `${base}sandboxes/${sandboxID}`,
    snapshots: `${base}snapshots/`,
    templates: `${base}templates/`,
  };
};

export const nodeIDForm = z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/, "expected a-z, 0-9 and '-', 63 characters or fewer");
const count = z.number().int().min(0);

/** Of a secret, not the secret: equal where the secrets are. */
const fingerprint = z.string().max(64);
export const fingerprints = z.object({ apiKey: fingerprint, seed: fingerprint });
export type Fingerprints = z.output<typeof fingerprints>;

export const deploymentRecord = z.looseObject({
  version: z.literal(1),
  deploymentID: z.string().max(64),
  /** Of the deployment secret. */
  fingerprint,
  /** Under the API key; absent where every node is given it as a file. */
  sealed: z.string().max(8192).optional(),
  /** The fingerprint of that API key. */
  sealedUnder: fingerprint.optional(),
});
export type DeploymentRecord = z.output<typeof deploymentRecord>;

/**
 *   serving ──stop──▶ stopped ──start──▶ serving     with a generation higher by one at each start
 *   serving ──its lease is over, or an operator says so──▶ dead ──start──▶ serving
 *
 * dead: what ran on it in this generation is lost, also where its processes still run; a node that returns ends them.
 */
export const nodeRecord = z.looseObject({
  version: z.literal(1),
  nodeID: nodeIDForm,
  slot: count,
  generation: count,
  state: z.enum(["serving", "stopped", "dead"]),
  /** Takes no new sandboxes. */
  isDraining: z.boolean(),
  /** Where gateways and other nodes reach it; absent before it serves for the first time. */
  url: z.string().max(512).optional(),
  /** Unix milliseconds, for people. */
  changedAtMs: z.number(),
  /** Why it is dead. */
  reason: z.string().max(512).optional(),
});
export type NodeRecord = z.output<typeof nodeRecord>;

export const liveRecord = z.looseObject({
  version: z.literal(1),
  nodeID: nodeIDForm,
  generation: count,
  /** Host and home: two processes never share one. */
  home: z.string().max(512),
  fingerprints,
  /** Absent until it serves. */
  url: z.string().max(512).optional(),
});
export type LiveRecord = z.output<typeof liveRecord>;

/** One key of `slots/`. */
export const slotRecord = z.object({ version: z.literal(1), nodeID: nodeIDForm });

export const initKeyRecord = z.object({ version: z.literal(1), sealed: z.string().max(1024) });

const SLOT_CHARS = 4;
const RANDOM_CHARS = 19;
/** Slots are given out once: four characters last for a million and a half nodes. */
export const MAX_SLOTS = 36 ** SLOT_CHARS;

/** How ids of a node begin: `i`, which all have, then its slot where it is part of a deployment. */
export function idStart(slot: number | undefined): string {
  return slot === undefined ? "i" : `i${slot.toString(36).padStart(SLOT_CHARS, "0")}`;
}

/** The random characters behind `idStart`. */
export const ID_RANDOM_CHARS = RANDOM_CHARS;
const slotted = new RegExp(`^i([a-z0-9]{${SLOT_CHARS}})[a-z0-9]{${RANDOM_CHARS}}$`);

/** Undefined for ids of nodes that were on their own when they made them: those are shorter. */
export function slotOf(sandboxID: string): number | undefined {
  const slot = slotted.exec(sandboxID)?.[1];
  return slot === undefined ? undefined : Number.parseInt(slot, 36);
}
