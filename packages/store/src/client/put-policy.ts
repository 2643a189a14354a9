// The put policy: the options of a put, and the form in which the master receives them.
import type { ReplicateConfig } from "../rpc/shapes.ts";

export type PutOptions = {
  /** The number of holders that each get the bytes; fewer where capacity is short. 1 by default. */
  readonly replicas?: number;
  /** The number of NOF segments that also get the bytes; fewer where capacity is short. None by default. With `replicas: 0` no memory is used. */
  readonly nofReplicas?: number;
  /** enable: evicted only when nothing else is left, for `softPinTtlMs` (by default the master's). keep: an upsert does not change the pin. */
  readonly softPin?: "keep" | "enable" | "disable";
  readonly softPinTtlMs?: number;
  /** Excludes the object from eviction. */
  readonly hardPin?: boolean;
  /** Names of segments that are tried first. */
  readonly preferredSegments?: readonly string[];
  readonly preferredNofSegments?: readonly string[];
  /** Tries memory of this host first. */
  readonly preferSameNode?: boolean;
  /** 0 unknown, 1 KV cache, 2 tensor, 3 weight, 4 sample, 5 activation, 6 gradient, 7 optimizer state, 8 metadata, 9 general. */
  readonly dataType?: number;
  /** Objects of one group are leased and evicted together. */
  readonly group?: string;
};

export type PutPolicy = {
  readonly config: ReplicateConfig;
  /** Equal for policies that the same memory can serve: the location and the number of replicas. */
  readonly placement: string;
};

const softPins = { keep: 0, enable: 1, disable: 2 } as const;

export function putPolicyOf(options: PutOptions, hostID: string): PutPolicy {
  const { replicas = 1, nofReplicas = 0, softPin = "keep", softPinTtlMs, hardPin = false } = options;
  const { preferredSegments = [], preferredNofSegments = [], preferSameNode = false, dataType = 0 } = options;
  const config: ReplicateConfig = {
    replicas: BigInt(Math.max(0, Math.trunc(replicas))),
    nofReplicas: BigInt(Math.max(0, Math.trunc(nofReplicas))),
    dfsReplicas: 0n,
    softPinAction: softPins[softPin],
    softPinTtlMs: softPinTtlMs === undefined ? undefined : BigInt(Math.trunc(softPinTtlMs)),
    hardPin,
    preferredSegments,
    preferredSegment: "",
    preferredNofSegments,
    preferSameNode,
    dataType,
    hostID,
    groupIDs: undefined,
  };
  return { config, placement: `${config.replicas}/${preferSameNode}/${preferredSegments.join()}/${config.nofReplicas}/${preferredNofSegments.join()}` };
}

/** Returns the same policy for `count` keys of one group. */
export const grouped = ({ config }: PutPolicy, group: string | undefined, count: number): ReplicateConfig =>
  group === undefined ? config : { ...config, groupIDs: Array.from({ length: count }, () => group) };
