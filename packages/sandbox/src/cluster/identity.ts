// Who this node is among others: a name of its own that stays, a generation that rises, its labels, what its secrets are told by.
import { availableParallelism } from "node:os";
import type { NodeIdentity } from "@svc/contract/cluster.ts";
import { fingerprintOf } from "@svc/kit/secret.ts";
import { thisMachine } from "./cpu-class.ts";
import { nodeIDOf } from "./node-id.ts";

export type IdentityParts = {
  readonly home: string;
  readonly version: string;
  readonly apiKey: string;
  readonly seedFingerprint: string;
  /** NAME=VALUE. */
  readonly labels: readonly string[];
  readonly maxSandboxes: number;
  readonly runtime: string;
  /** Of its deployment; of a node on its own, when this process began to serve. */
  readonly generation: number;
  readonly fetchesFromNodes: boolean;
};

/** @throws SETTING_INVALID where the file with the node's name holds something else. */
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
}: IdentityParts): NodeIdentity {
  const { cpuClass, ...machine } = thisMachine();
  return {
    nodeID: nodeIDOf(home),
    generation,
    version,
    fingerprints: { apiKey: fingerprintOf(apiKey, "api-key"), seed: seedFingerprint },
    cpuClass,
    labels: Object.fromEntries(labels.map((label) => splitLabel(label))),
    maxSandboxes,
    runtime,
    machine: { cpuCount: availableParallelism(), ...machine },
    fetchesFromNodes,
    settlesNames: true,
  };
}

function splitLabel(label: string): [name: string, value: string] {
  const at = label.indexOf("=");
  return [label.slice(0, at), label.slice(at + 1)];
}
