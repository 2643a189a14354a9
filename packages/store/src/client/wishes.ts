// What a caller may wish for an object that it stores, and the form in which the master takes it.
import type { ReplicateConfig } from "../rpc/shapes.ts";

export type PutOptions = {
  /** Holders that each get the bytes; fewer where fewer have room. 1 by default. */
  readonly replicas?: number;
  /** NOF segments that each get the bytes as well; fewer where fewer have room. None by default. With `replicas: 0`, memory gets none. */
  readonly nofReplicas?: number;
  /** Enable: evicted only when nothing else is left, for `softPinTtlMs` (the master's default where it is left out). An upsert keeps what there is. */
  readonly softPin?: "keep" | "enable" | "disable";
  readonly softPinTtlMs?: number;
  /** Never evicted. */
  readonly hardPin?: boolean;
  /** Names of segments that are tried first. */
  readonly preferredSegments?: readonly string[];
  readonly preferredNofSegments?: readonly string[];
  /** Memory of this host is tried first. */
  readonly preferSameNode?: boolean;
  /** 0 unknown, 1 KV cache, 2 tensor, 3 weight, 4 sample, 5 activation, 6 gradient, 7 optimizer state, 8 metadata, 9 general. */
  readonly dataType?: number;
  /** Objects of one group are leased together and leave together. */
  readonly group?: string;
};

export type Wish = {
  readonly config: ReplicateConfig;
  /** Equal for wishes that the same memory serves: where it lies, and how often. */
  readonly placement: string;
};

const softPins = { keep: 0, enable: 1, disable: 2 } as const;

export function wishOf(options: PutOptions, hostID: string): Wish {
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

/** The same wish for `count` keys of one group. */
export const grouped = ({ config }: Wish, group: string | undefined, count: number): ReplicateConfig =>
  group === undefined ? config : { ...config, groupIDs: Array.from({ length: count }, () => group) };
