// The nodes of a deployment as clients of a gateway see them, in the shape of the E2B API.
import { z } from "zod";
import { operation } from "./operation.ts";
import { listedSandbox } from "./sandbox.ts";

export const nodeStatus = z.enum(["ready", "draining", "connecting", "unhealthy"]);
export type NodeStatus = z.output<typeof nodeStatus>;

const count = z.number().int().min(0);

export const shownNode = z.object({
  id: z.string().describe("As the node names itself; its URL while it never answered"),
  nodeID: z.string().describe("As id, of older clients"),
  clusterID: z.string(),
  serviceInstanceID: z.string().describe("Another for each start of the node"),
  version: z.string(),
  commit: z.string().describe("Of the tree that it runs; empty where neither a checkout nor a release says"),
  runsc: z.string().describe("The program that it checkpoints memory with, by its content; empty where its driver needs none"),
  schema: z.string().describe("The versions of its records: of sandboxes and of templates"),
  clockSkewMs: z.number().optional().describe("Milliseconds that its clock is ahead of the deployment's; above 2,000 on either side it is not ready"),
  status: nodeStatus,
  reason: z.string().optional().describe("Why it is not ready"),
  url: z.string(),
  cpuClass: z.string(),
  labels: z.record(z.string(), z.string()),
  sandboxCount: count.describe("Sandboxes that run"),
  sandboxPausedCount: count,
  sandboxStartingCount: count,
  sandboxMax: count,
  createSuccesses: count.describe("Of this gateway, since it started"),
  createFails: count,
  metrics: z.object({
    allocatedCPU: z.number(),
    cpuPercent: z.number(),
    cpuCount: count,
    allocatedMemoryBytes: count.describe("The limits of its sandboxes together"),
    memoryUsedBytes: count.describe("Of the machine: what is not available, whoever uses it"),
    memoryTotalBytes: count,
    disks: z
      .array(z.object({ mountPoint: z.string(), device: z.string(), filesystemType: z.string(), usedBytes: count, totalBytes: count }))
      .describe("The file system that the node's home is on, whoever uses it; its mountPoint is `home`: paths of a node are not for clients"),
  }),
  machineInfo: z.object({ cpuFamily: z.string(), cpuModel: z.string(), cpuModelName: z.string(), cpuArchitecture: z.string() }),
  pools: z.record(z.string(), count).describe("Warm sandboxes, by template"),
});
export type ShownNode = z.output<typeof shownNode>;

export const listNodes = operation({
  name: "listNodes",
  method: "GET",
  path: "/nodes",
  summary: "Lists the nodes of the deployment, with what each holds and has left",
  input: z.object({}),
  output: z.array(shownNode),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED"],
});

export const getNode = operation({
  name: "getNode",
  method: "GET",
  path: "/nodes/{nodeID}",
  summary: "One node with its sandboxes and templates",
  input: z.object({ nodeID: z.string().min(1).max(256) }),
  output: shownNode.extend({ sandboxes: z.array(listedSandbox), cachedBuilds: z.array(z.string()) }),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "NODE_NOT_FOUND", "NODE_LOST"],
});

export const scaling = z.object({
  wanted: count.describe("Nodes that the load needs; it falls only after the load was lower for gateway.scale_in_seconds"),
  serving: count.describe("Nodes that answer and do not drain"),
  reason: z.string().describe("The scarcest: sandboxes, promised_memory, used_memory, waiting_creates; none before a node answered"),
  by: z.record(z.string(), count).describe("Nodes that each reason alone needs"),
  drain: z.array(z.string()).describe("The nodes to drain where fewer are wanted, those with the fewest sandboxes first"),
});
export type Scaling = z.output<typeof scaling>;

export const getScaling = operation({
  name: "getScaling",
  method: "GET",
  path: "/scaling",
  summary: "How many nodes the load needs and why, and which ones to drain where fewer are needed",
  input: z.object({}),
  output: scaling,
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED"],
});

/** The operations that a gateway serves in addition to those of its nodes. */
export const nodesOperations = { listNodes, getNode, getScaling } as const;
