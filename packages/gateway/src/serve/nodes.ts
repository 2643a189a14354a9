// Serves GET /nodes and GET /nodes/{nodeID}: the deployment's nodes in the shape of the E2B API.
import type { NodeStatus, ShownNode } from "@svc/contract/nodes.ts";
import type { Member } from "../members/member.ts";

export function statusOf({ status, load, isClockOff }: Member): NodeStatus {
  if (status.state === "up" && isClockOff) return "unhealthy";
  if (status.state === "up") return load?.isDraining === true ? "draining" : "ready";
  return status.state === "connecting" ? "connecting" : "unhealthy";
}

export function shownNode(member: Member): ShownNode {
  const { identity, load, running, paused, creating, createSuccesses, createFails, url, name, reason } = member;
  const { cpuCount = 0, ...machine } = identity?.machine ?? {};
  return {
    id: name,
    nodeID: name,
    clusterID: "svc",
    serviceInstanceID: identity === undefined ? "" : `${identity.nodeID}-${identity.generation}`,
    version: identity?.version ?? "",
    commit: identity?.commit ?? "",
    runsc: identity?.runsc ?? "",
    schema: identity?.schema ?? "",
    ...(load?.clockSkewMs === undefined ? {} : { clockSkewMs: load.clockSkewMs }),
    status: statusOf(member),
    ...(reason === "" ? {} : { reason }),
    url,
    cpuClass: identity?.cpuClass ?? "",
    labels: identity?.labels ?? {},
    sandboxCount: running.size,
    sandboxPausedCount: paused.size,
    sandboxStartingCount: Math.max(creating, load?.starting ?? 0),
    sandboxMax: identity?.maxSandboxes ?? 0,
    createSuccesses,
    createFails,
    metrics: {
      allocatedCPU: load?.allocatedCPU ?? 0,
      cpuPercent: load?.cpuPercent ?? 0,
      cpuCount,
      allocatedMemoryBytes: load?.memory.reservedBytes ?? 0,
      memoryUsedBytes: load === undefined ? 0 : load.memory.totalBytes - load.memory.availableBytes,
      memoryTotalBytes: load?.memory.totalBytes ?? 0,
      disks: load === undefined ? [] : [{ mountPoint: "home", device: "", filesystemType: "", ...load.disk }],
    },
    machineInfo: { cpuFamily: "", cpuModel: "", cpuModelName: "", cpuArchitecture: "", ...machine },
    pools: load?.pools ?? {},
  };
}
