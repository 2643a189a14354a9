// A running node's part in a backup: it copies its state as of one moment, and leaves the rest to `svc backup create`.
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { StagedBackup } from "@svc/contract/backup.ts";
import { fail } from "@svc/contract/failures.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import type { Checkpoints } from "../records/checkpoints.ts";
import type { Layers } from "../template/layers.ts";
import type { Volumes } from "../volumes/open-volumes.ts";
import { clearStaging, stageHome } from "./stage.ts";

export type StagingParts = {
  readonly home: string;
  readonly settings: {
    readonly node: { readonly audit_log: string; readonly deployment_secret_file: string };
    readonly sandbox: { readonly access_token_hash_seed: string };
    readonly volumes: { readonly directory: string };
  };
  readonly spawner: Spawner;
  readonly checkpoints: Pick<Checkpoints, "holdAll">;
  readonly layers: Pick<Layers, "holdAll">;
  readonly volumes: Pick<Volumes, "onThisDisk">;
  readonly nodeID: () => string;
  readonly env: Readonly<Record<string, string | undefined>>;
};

export function openStaging({ home, settings, spawner, checkpoints, layers, volumes, nodeID, env }: StagingParts): () => Promise<StagedBackup> {
  let isStaging = false;
  // This process has the home's lock: what is there is left from a backup that was killed.
  clearStaging(home);

  async function hold(): Promise<() => Promise<void>> {
    const [ofCheckpoints, ofLayers] = await Promise.all([checkpoints.holdAll(), layers.holdAll()]);
    return async () => {
      ofLayers();
      await ofCheckpoints();
    };
  }

  return async () => {
    if (isStaging) fail("REQUEST_IN_FLIGHT", "another backup of this node is being prepared; try again in a moment");
    isStaging = true;
    try {
      // The lock of `svc backup create` allows one at a time, so an earlier one was killed.
      clearStaging(home);
      const mounted = await volumes.onThisDisk();
      const { backupID, folder } = await stageHome({ home, auditLog: settings.node.audit_log, spawner, hold });
      return { backupID, folder, nodeID: nodeID(), volumes: mounted, notInHome: notInHome() };
    } finally {
      isStaging = false;
    }
  };

  /** Names what a node on the restored home needs from elsewhere. */
  function notInHome(): string[] {
    const { node, sandbox, volumes: ofVolumes } = settings;
    const missing = (name: string) => !existsSync(join(home, "secrets", name));
    return [
      ...((env["SVC_API_KEY"] ?? "") !== "" || missing("api-key") ? ["the API key, which the node has from its environment or a mounted file"] : []),
      ...(sandbox.access_token_hash_seed.trim() !== "" ? ["the token seed, which the node has from its settings"] : []),
      ...(node.deployment_secret_file === "" ? [] : [`the deployment secret, ${node.deployment_secret_file}`]),
      ...(ofVolumes.directory === "" ? [] : [`the files of volumes, in ${ofVolumes.directory}`]),
    ];
  }
}
