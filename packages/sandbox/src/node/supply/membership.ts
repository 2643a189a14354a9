// The node's membership in a deployment, where settings name an etcd.
import type { JoinParts, Membership } from "../../cluster/join.ts";
import type { NodeSettings } from "../settings.ts";

/** The import is dynamic so that a node that runs alone loads none of the cluster's code. */
export async function joined(
  home: string,
  { cluster, node }: NodeSettings,
  known: Pick<JoinParts, "apiKey" | "seed" | "certificates" | "log">,
): Promise<Membership | undefined> {
  if (cluster.etcd.length === 0) return undefined;
  const { joinDeployment } = await import("../../cluster/join.ts");
  return joinDeployment({
    ...known,
    etcd: cluster.etcd,
    name: cluster.name,
    leaseSeconds: cluster.lease_seconds,
    deadAfterSeconds: cluster.dead_after_seconds,
    home,
    secretFile: node.deployment_secret_file,
  });
}
