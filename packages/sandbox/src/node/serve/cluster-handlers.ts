// The handlers of what gateways and other nodes ask of this node: takeovers, names, and counts of spawns.
import type { StagedBackup } from "@svc/contract/backup.ts";
import type { NameRecord } from "@svc/contract/cluster.ts";
import type { SnapshotTransfer } from "../../snapshot-transfer/open-snapshot-transfer.ts";
import type { Templates } from "../../template/open-templates.ts";
import type { NamedSnapshots } from "../verbs/named-snapshots.ts";
import type { Takes } from "../verbs/take.ts";
import type { Listing } from "./list.ts";

export type ClusterHandlerParts = {
  readonly takes: Pick<Takes, "take" | "end">;
  readonly transfer: Pick<SnapshotTransfer, "templates" | "readSandbox">;
  readonly listing: Pick<Listing, "detail">;
  readonly snapshots: Pick<NamedSnapshots, "settle">;
  readonly templates: Pick<Templates, "index" | "builder">;
  readonly stageBackup: () => Promise<StagedBackup>;
};

export const clusterHandlers = ({ takes: { take, end }, transfer, listing: { detail }, snapshots, templates, stageBackup }: ClusterHandlerParts) => ({
  stageBackup,
  settleNames: ({ names }: { names: readonly NameRecord[] }) => ({ changed: snapshots.settle(names) }),
  countSpawns() {
    const fetched = new Set(templates.builder.copies.all().map(({ templateID }) => templateID));
    return [...fetched].map((templateID) => {
      const { count, lastAtMs } = templates.index.spawns(templateID);
      return { templateID, spawnCount: count, lastSpawnedAt: lastAtMs === undefined ? null : new Date(lastAtMs).toISOString() };
    });
  },
  dropTemplate: async ({ templateID, isOrphan }: { templateID: string; isOrphan: boolean }) => ({
    dropped: await transfer.templates.drop(templateID, isOrphan),
  }),
  readSandbox: async ({ manifest }: { manifest: string }) => detail(await transfer.readSandbox(manifest)),
  async endSandbox({ sandboxID, nodeID }: { sandboxID: string; nodeID?: string | undefined }) {
    await end(sandboxID, nodeID);
    return undefined;
  },
  takeSandbox: ({ sandboxID, timeoutSeconds }: { sandboxID: string; timeoutSeconds?: number | undefined }) => take(sandboxID, timeoutSeconds),
});
