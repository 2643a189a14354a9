// Deletes what other nodes made: copies on this node and, if the node that made it has left the deployment, its data in object storage.
import type { Snapshots } from "../records/snapshots.ts";
import type { Copies } from "../template/copies.ts";
import type { Catalog, Exports } from "./exports.ts";
import type { Stored } from "./stored.ts";
import type { StoredTemplates } from "./stored-templates.ts";
import { BUILD_ID } from "./template-manifest.ts";

export type DropsParts = {
  readonly copies: Pick<Copies, "of" | "get">;
  readonly snapshots: Pick<Snapshots, "find">;
  readonly dropCopy: (buildID: string) => Promise<void>;
  readonly deleteSnapshot: (snapshotID: string) => Promise<boolean>;
  readonly exports: Pick<Exports, "forget"> | undefined;
  readonly stored: Pick<Stored, "anyOf" | "dropSnapshot"> | undefined;
  readonly storedTemplates: Pick<StoredTemplates, "dropTemplateOf"> | undefined;
  readonly catalog: Pick<Catalog, "drop"> | undefined;
};

export interface Drops {
  /**
   * Deletes copies of a template (by id or name) or a snapshot (by id), and with `isOrphan` its data in object storage. Returns true if there was
   * any.
   */
  drop(asked: string, isOrphan: boolean): Promise<boolean>;
  /** Deletes one copy by the id of its snapshot or build. */
  dropOne(id: string): Promise<boolean>;
}

export function openDrops({ copies, snapshots, dropCopy, deleteSnapshot, exports, stored, storedTemplates, catalog }: DropsParts): Drops {
  // I55
  async function dropOne(id: string): Promise<boolean> {
    const isCopy = copies.get(id) !== undefined;
    if (isCopy) await dropCopy(id);
    if (snapshots.find(id)?.originNodeID === undefined) return isCopy;
    // The note is removed first, so that the data in object storage, which is the other node's, is not deleted.
    await exports?.forget(id);
    return deleteSnapshot(id);
  }

  return {
    dropOne,
    async drop(asked, isOrphan) {
      const here = copies.of(asked);
      for (const { buildID } of here) await dropOne(buildID);
      const isDropped = (await dropOne(asked)) || here.length > 0;
      if (!isOrphan || stored === undefined || storedTemplates === undefined) return isDropped;
      const id = here[0]?.buildID ?? (await stored.anyOf(asked));
      if (id === undefined) return isDropped;
      // The catalog entry is deleted first, because the remaining data is enough to repeat the delete after a kill.
      if (!BUILD_ID.test(id)) {
        await catalog?.drop("snapshots", id);
        return (await stored.dropSnapshot(id)) || isDropped;
      }
      const wasThere = await storedTemplates.dropTemplateOf(id, async (templateID) => catalog?.drop("templates", templateID));
      return wasThere || isDropped;
    },
  };
}
