// A node's identity: its permanent name, its rising generation, its labels and the fingerprints of its secrets.
import { availableParallelism } from "node:os";
import type { NodeIdentity } from "@svc/contract/cluster.ts";
import { treeCommit } from "@svc/kit/commit.ts";
import { fingerprintOf } from "@svc/kit/secret.ts";
import { RECORDS_VERSION } from "../records/records.ts";
import { TEMPLATES_VERSION } from "../template/database.ts";
import { thisMachine } from "./cpu-class.ts";
import { nodeIDOf } from "./node-id.ts";

export type IdentityParts = {
  readonly home: string;
  readonly version: string;
  readonly apiKey: string;
  readonly seedFingerprint: string;
  /** Each label is NAME=VALUE. */
  readonly labels: readonly string[];
  readonly maxSandboxes: number;
  readonly runtime: string;
  /** The node's generation in its deployment; without a deployment, the time at which this process began to serve. */
  readonly generation: number;
  readonly fetchesFromNodes: boolean;
  readonly runsc: string;
};

/** @throws SETTING_INVALID if the file with the node's name has invalid content. */
export function readIdentity({
  home,
  version,
  apiKey,
  seedFingerprint,
  labels,
  maxSandboxes,
  runtime,
  generation,
  fetchesFromNodes,
  runsc,
}: IdentityParts): NodeIdentity {
  const { cpuClass, ...machine } = thisMachine();
  return {
    nodeID: nodeIDOf(home),
    generation,
    version,
    commit: commit(),
    runsc,
    schema: `${RECORDS_VERSION}.${TEMPLATES_VERSION}`,
    fingerprints: { apiKey: fingerprintOf(apiKey, "api-key"), seed: seedFingerprint },
    cpuClass,
    labels: Object.fromEntries(labels.map((label) => splitLabel(label))),
    maxSandboxes,
    runtime,
    machine: { cpuCount: availableParallelism(), ...machine },
    fetchesFromNodes,
    settlesNames: true,
    settlesWebhooks: true,
    settlesSecrets: true,
    settlesPreviews: true,
    hasVolumes: true,
    endsSandboxes: true,
  };
}

let known: string | undefined;
/** Read once, because a later change of the checkout does not change the running code. */
function commit(): string {
  known ??= treeCommit();
  return known;
}

function splitLabel(label: string): [name: string, value: string] {
  const at = label.indexOf("=");
  return [label.slice(0, at), label.slice(at + 1)];
}
