// What etcd says of sandboxes, snapshots and templates that any node of a deployment can take from object storage.
import { z } from "zod";
import { nodeIDForm } from "./cluster-records.ts";
import { snapshotInfo } from "./lifecycle.ts";
import { listedSandbox } from "./sandbox.ts";
import { listedTemplate } from "./template.ts";

/**
 * Whoever is named owns it; each change is a compare-and-set, before anything of it starts.
 *
 *   (none) ──share──▶ manifest ──keep──▶ no manifest ──share──▶ …      by its owner: paused and exported, then resumed
 *                        ├──offer──▶ isOffered ──keep──▶ no manifest
 *                        └──take──▶ manifest, another nodeID           once offered, or while its owner does not serve
 *
 *   forget: (none), or isOver until each node that it was taken from has been back
 */
export const sandboxRecord = z.looseObject({
  version: z.literal(1),
  sandboxID: z.string().max(64),
  nodeID: nodeIDForm,
  /** By which any node imports it from object storage; without it only its owner has it, and may run it. */
  manifest: z.string().max(256).optional(),
  /** As lists show it while it rests there; absent where a node of an earlier version wrote it. */
  listed: listedSandbox.optional().catch(undefined),
  /** Any node may take it, though its owner serves. */
  isOffered: z.boolean().default(false),
  /** Nodes from which it was taken while they did not serve, and that have not been back since: each still has it on its disk. */
  takenFrom: z.array(nodeIDForm).max(100).default([]),
  /** It has ended, and is on record for those that it was taken from. */
  isOver: z.boolean().default(false),
  /** Of this write: whoever reads its own back knows that it was made. */
  writeID: z.string().max(64),
});
export type SharedSandbox = z.output<typeof sandboxRecord>;

/** Written by the node that exported it, which lists it itself as long as it answers. */
export const storedSnapshot = z.looseObject({ version: z.literal(1), nodeID: nodeIDForm, listed: snapshotInfo });
export type StoredSnapshot = z.output<typeof storedSnapshot>;
export const storedTemplate = z.looseObject({ version: z.literal(1), nodeID: nodeIDForm, listed: listedTemplate });
export type StoredTemplate = z.output<typeof storedTemplate>;
