// `svc node --destroy-all` where other nodes could take over exported sandboxes: the deployment forgets them first, or nothing is ended.
import { readdirSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { clusterKeys } from "@svc/contract/cluster-records.ts";
import { fail } from "@svc/contract/failures.ts";
import { openEtcd } from "@svc/kit/etcd/client.ts";
import type { Log } from "@svc/kit/log.ts";
import { openObjects } from "@svc/kit/objects/open-objects.ts";
import { openPeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { readMembership } from "../../cluster/membership-file.ts";
import { nodeIDOf } from "../../cluster/node-id.ts";
import { openOwnership } from "../../cluster/ownership.ts";
import { MANIFESTS } from "../../snapshot-transfer/chunk-store.ts";
import type { NodeSettings } from "../settings.ts";

const EXPORTED = /^(i[a-z0-9]{19,62})\.(c[0-9a-f]{24})$/;
const SHOWN = 3;

export type EndExportedParts = {
  readonly home: string;
  readonly settings: Pick<NodeSettings, "cluster" | "node" | "objects" | "peers">;
  /** Leaves exported sandboxes in the deployment, so that other nodes can resume them. */
  readonly isToLeave: boolean;
  readonly env: NodeJS.ProcessEnv;
  readonly log: Log;
};

/** @throws SETTING_INVALID where settings that this needs are missing; ETCD_UNAVAILABLE, OBJECTS_UNAVAILABLE. */
export async function endExported({ home, settings, isToLeave, env, log }: EndExportedParts): Promise<void> {
  const notes = join(home, "snapshot-transfer", "exported");
  const exported = namesIn(notes).flatMap((note) => {
    const [, sandboxID, checkpointID] = EXPORTED.exec(note) ?? [];
    return sandboxID === undefined || checkpointID === undefined ? [] : [{ note, sandboxID, checkpointID }];
  });
  // Without the note, a later start of this home does not remove the sandbox's data from object storage.
  if (isToLeave) for (const { note } of exported) await rm(join(notes, note), { force: true });
  if (exported.length === 0 || isToLeave) return;
  const isMember = readMembership(home) !== undefined;
  const { cluster, objects } = settings;
  const missing = [...(isMember && cluster.etcd.length === 0 ? ["cluster.etcd"] : []), ...(objects.url === "" ? ["objects.url"] : [])];
  if (missing.length > 0) {
    const ids = [...new Set(exported.map(({ sandboxID }) => sandboxID))];
    const shown = `${ids.slice(0, SHOWN).join(", ")}${ids.length > SHOWN ? ` and ${ids.length - SHOWN} more` : ""}`;
    const left = isMember ? "its deployment would go on listing them" : "they would stay in object storage";
    fail(
      "SETTING_INVALID",
      `${ids.length} paused sandboxes of ${home} were exported to object storage (${shown}), and ${left}: expected the node's own settings, and ${missing.join(" and ")} is missing; give it as when the node is started (--config FILE, --etcd, --objects.url), or add --leave-exported to leave them to other nodes. Nothing was ended`,
    );
  }
  const certificates = openPeerCertificates(settings.peers, log);
  const etcd = isMember ? openEtcd({ endpoints: cluster.etcd, certificates }) : undefined;
  const store = await openObjects(objects, settings.node.durability, env);
  try {
    const nodeID = nodeIDOf(home);
    const ownership = etcd && openOwnership(etcd, clusterKeys(cluster.name), nodeID);
    const owners = await ownership?.load();
    for (const { note, sandboxID, checkpointID } of exported) {
      const owner = owners?.get(sandboxID)?.nodeID ?? nodeID;
      // The record goes first: no node takes over an unlisted sandbox while its files are removed.
      if (owner === nodeID) {
        await ownership?.forget(sandboxID);
        await store.delete(`${MANIFESTS}sandboxes/${sandboxID}/${checkpointID}`);
        log.info({ sandboxID }, "an exported sandbox is not listed by the deployment any more");
      }
      await rm(join(notes, note), { force: true });
    }
  } finally {
    await store.close();
    await etcd?.close();
    certificates?.close();
  }
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
