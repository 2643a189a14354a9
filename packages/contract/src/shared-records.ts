// etcd's records of sandboxes, snapshots and templates that any node of a deployment can take from object storage.
import { z } from "zod";
import { nodeIDForm } from "./cluster-records.ts";
import { snapshotInfo } from "./lifecycle.ts";
import { listedSandbox } from "./sandbox.ts";
import { listedTemplate } from "./template.ts";

/**
 * The named node owns the sandbox; each change of the record is a compare-and-set, made before anything of the sandbox starts.
 *
 *   (none) ──share──▶ manifest ──keep──▶ no manifest ──share──▶ …      by its owner: paused and exported, then resumed
 *                        ├──offer──▶ isOffered ──keep──▶ no manifest
 *                        └──take──▶ manifest, another nodeID           once offered, or while its owner does not serve
 *
 *   forget: (none), or isOver until each node that it was taken from has served again
 */
export const sandboxRecord = z.looseObject({
  version: z.literal(1),
  sandboxID: z.string().max(64),
  nodeID: nodeIDForm,
  /** The manifest with which any node imports it from object storage; without one only its owner has it, and may run it. */
  manifest: z.string().max(256).optional(),
  /** Its entry in lists while it is stored only in object storage; absent if a node of an earlier version wrote the record. */
  listed: listedSandbox.optional().catch(undefined),
  /** The tenant that it belongs to, also where `listed` is left out; absent: the deployment itself. */
  tenant: z.string().max(64).optional(),
  /** Any node may take it, even while its owner serves. */
  isOffered: z.boolean().default(false),
  /** Nodes that it was taken from while they did not serve, and that have not served since: each still has it on its disk. */
  takenFrom: z.array(nodeIDForm).max(100).default([]),
  /** It has ended; the record stays for the nodes that it was taken from. */
  isOver: z.boolean().default(false),
  /** Identifies this write, so that a writer that lost the answer can recognize its own record. */
  writeID: z.string().max(64),
});
export type SharedSandbox = z.output<typeof sandboxRecord>;

/** Written by the node that exported it, which itself lists the snapshot as long as it answers. */
export const storedSnapshot = z.looseObject({ version: z.literal(1), nodeID: nodeIDForm, listed: snapshotInfo });
export type StoredSnapshot = z.output<typeof storedSnapshot>;
export const storedTemplate = z.looseObject({ version: z.literal(1), nodeID: nodeIDForm, listed: listedTemplate });
export type StoredTemplate = z.output<typeof storedTemplate>;
