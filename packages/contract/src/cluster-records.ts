// The records that nodes and gateways of a deployment keep in etcd, by key; and the node slot that is part of a sandbox's id.
import { z } from "zod";

// svc/NAME/deployment          the deployment: its id, and the secret that all nodes share
// svc/NAME/nodes/NODEID        a member, until it is removed; each change is a compare-and-set
// svc/NAME/live/NODEID         its running process; under a lease
// svc/NAME/slots/SLOT          the node whose sandbox ids contain this slot; never reused
// svc/NAME/slots-used          the number of slots in use, which is also the next free one
// svc/NAME/init-keys/PUBLIC    a key that envd of some sandbox accepts, encrypted under the deployment secret
// svc/NAME/sandboxes/ID        the owner of a sandbox that other nodes can resume, or that moved
// svc/NAME/snapshots/ID        a snapshot that is complete in object storage, as lists show it
// svc/NAME/api-keys/ID         a named key: hashes of it, its tenant and role
// svc/NAME/tenants/NAME        the quotas of a tenant
// svc/NAME/api-key-uses/ID     when that key was last used, to the hour
// svc/NAME/templates/ID        the same for a template that has a build in object storage

// Nodes and gateways of two versions share these records. A later version only adds members, which an earlier one preserves when it writes a record. Where
// adding is not enough, `version` is increased, and a process that does not know that version leaves the record alone.

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
    apiKeys: `${base}api-keys/`,
    apiKey: (id: string) => `${base}api-keys/${id}`,
    tenants: `${base}tenants/`,
    tenant: (name: string) => `${base}tenants/${name}`,
    apiKeyUses: `${base}api-key-uses/`,
    apiKeyUse: (id: string) => `${base}api-key-uses/${id}`,
  };
};

export const nodeIDForm = z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/, "expected a-z, 0-9 and '-', 63 characters or fewer");
const count = z.number().int().min(0);

/** A fingerprint identifies a secret without revealing it: it is equal where the secrets are. */
const fingerprint = z.string().max(64);
export const fingerprints = z.object({ apiKey: fingerprint, seed: fingerprint });
export type Fingerprints = z.output<typeof fingerprints>;

export const deploymentRecord = z.looseObject({
  version: z.literal(1),
  deploymentID: z.string().max(64),
  /** The fingerprint of the deployment secret. */
  fingerprint,
  /** The deployment secret, encrypted under the API key; absent if every node gets it as a file. */
  sealed: z.string().max(8192).optional(),
  /** The fingerprint of that API key. */
  sealedUnder: fingerprint.optional(),
});
export type DeploymentRecord = z.output<typeof deploymentRecord>;

/**
 *   serving ──stop──▶ stopped ──start──▶ serving     the generation increases by one at each start
 *   serving ──its lease expired, or an operator declared it dead──▶ dead ──start──▶ serving
 *
 * dead: everything that ran on it in this generation is lost, even if its processes still run; a node that returns ends them.
 */
export const nodeRecord = z.looseObject({
  version: z.literal(1),
  nodeID: nodeIDForm,
  slot: count,
  generation: count,
  state: z.enum(["serving", "stopped", "dead"]),
  /** The node accepts no new sandboxes. */
  isDraining: z.boolean(),
  /** The URL under which gateways and other nodes reach it; absent before it serves for the first time. */
  url: z.string().max(512).optional(),
  /** Unix milliseconds, for people. */
  changedAtMs: z.number(),
  /** The reason why it is dead. */
  reason: z.string().max(512).optional(),
});
export type NodeRecord = z.output<typeof nodeRecord>;

export const liveRecord = z.looseObject({
  version: z.literal(1),
  nodeID: nodeIDForm,
  generation: count,
  /** Host and home directory; two processes never share one. */
  home: z.string().max(512),
  fingerprints,
  /** Absent until it serves. */
  url: z.string().max(512).optional(),
});
export type LiveRecord = z.output<typeof liveRecord>;

/** The record of one key of `slots/`. */
export const slotRecord = z.object({ version: z.literal(1), nodeID: nodeIDForm });

export const initKeyRecord = z.object({ version: z.literal(1), sealed: z.string().max(1024) });

const SLOT_CHARS = 4;
const RANDOM_CHARS = 19;
/** Slots are never reused: four characters are enough for a million and a half nodes. */
export const MAX_SLOTS = 36 ** SLOT_CHARS;

/** The beginning of a node's sandbox ids: `i`, then its slot if the node is part of a deployment. */
export function idStart(slot: number | undefined): string {
  return slot === undefined ? "i" : `i${slot.toString(36).padStart(SLOT_CHARS, "0")}`;
}

/** The number of random characters after `idStart`. */
export const ID_RANDOM_CHARS = RANDOM_CHARS;
const slotted = new RegExp(`^i([a-z0-9]{${SLOT_CHARS}})[a-z0-9]{${RANDOM_CHARS}}$`);

/** Returns undefined for ids that a node made while it was not part of a deployment: those are shorter. */
export function slotOf(sandboxID: string): number | undefined {
  const slot = slotted.exec(sandboxID)?.[1];
  return slot === undefined ? undefined : Number.parseInt(slot, 36);
}
