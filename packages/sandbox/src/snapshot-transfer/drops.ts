// Drops what other nodes made: copies here, and, where the node that made it left the deployment, what object storage has of it.
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
  /** Copies of a template, by its id or name, or of a snapshot, by its id; and what object storage has of it, where `isOrphan`. Whether there was any. */
  drop(asked: string, isOrphan: boolean): Promise<boolean>;
  /** One copy, by the id of a snapshot or build. */
  dropOne(id: string): Promise<boolean>;
}

export function openDrops({ copies, snapshots, dropCopy, deleteSnapshot, exports, stored, storedTemplates, catalog }: DropsParts): Drops {
  // I55
  async function dropOne(id: string): Promise<boolean> {
    const isCopy = copies.get(id) !== undefined;
    if (isCopy) await dropCopy(id);
    if (snapshots.find(id)?.originNodeID === undefined) return isCopy;
    // The note first: what object storage has of it is the other node's to take away.
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
      // What is listed first: by what is left after a kill it can be deleted again.
      if (!BUILD_ID.test(id)) {
        await catalog?.drop("snapshots", id);
        return (await stored.dropSnapshot(id)) || isDropped;
      }
      const wasThere = await storedTemplates.dropTemplateOf(id, async (templateID) => catalog?.drop("templates", templateID));
      return wasThere || isDropped;
    },
  };
}
