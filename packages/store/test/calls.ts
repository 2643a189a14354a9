// Arguments of tests' calls: a writer's default put policy, a client's id, segments that need no memory.
import type { ReplicateConfig, Segment } from "../src/rpc/shapes.ts";

export const clientID = "00000000-0000-0001-0000-000000000002";

export const plain: ReplicateConfig = {
  replicas: 1n,
  nofReplicas: 0n,
  dfsReplicas: 0n,
  softPinAction: 0,
  softPinTtlMs: undefined,
  hardPin: false,
  preferredSegments: [],
  preferredSegment: "",
  preferredNofSegments: [],
  preferSameNode: false,
  dataType: 0,
  hostID: "",
  groupIDs: undefined,
};

/** No bytes are transferred, so the segment's memory may be anywhere. */
export function segmentOf(number: number, sizeBytes: bigint): Segment {
  const id = `00000000-0000-0000-0000-${number.toString(16).padStart(12, "0")}`;
  const name = `holder-${number}:1`;
  return { id, name, base: BigInt(number) << 40n, sizeBytes, endpoint: name, protocol: "tcp", hostID: "" };
}
