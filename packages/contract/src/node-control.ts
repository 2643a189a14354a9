// How a node is taken out of service and put back, in the shape of the E2B API where that has one.
import { z } from "zod";
import { operation } from "./operation.ts";

const nodeID = z.string().min(1).max(256).describe("As GET /nodes shows it; `self`: the node that is asked");

export const setNodeStatus = operation({
  name: "setNodeStatus",
  method: "POST",
  path: "/nodes/{nodeID}",
  summary: "Drains a node: it takes no new sandboxes and pauses those that run; or makes it ready again",
  input: z.object({ nodeID, status: z.enum(["draining", "ready"]) }),
  output: z.undefined(),
  success: 204,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "INVALID_REQUEST", "NODE_NOT_FOUND", "NODE_LOST", "ETCD_UNAVAILABLE"],
});

export const nodeDrain = z.object({
  nodeID: z.string(),
  isDraining: z.boolean(),
  running: z.number().int().min(0).describe("Sandboxes that still run"),
  paused: z.number().int().min(0),
  handsOver: z.boolean().default(false).describe("Paused ones go to other nodes: the deployment has etcd and object storage"),
  failed: z
    .array(z.object({ sandboxID: z.string(), message: z.string() }))
    .max(100)
    .describe("Those that could not be paused, or handed over; tried again"),
  pausedByDrain: z.array(z.string()).max(1000).default([]).describe("Those that the drain paused and that are paused still; a resume goes on with each"),
  movedByDrain: z
    .array(z.object({ sandboxID: z.string(), nodeID: z.string() }))
    .max(1000)
    .default([])
    .describe("Those that the drain handed over, and to which node"),
});
export type NodeDrain = z.output<typeof nodeDrain>;

export const getNodeDrain = operation({
  name: "getNodeDrain",
  method: "GET",
  path: "/nodes/{nodeID}/drain",
  summary: "How far a node's drain is",
  input: z.object({ nodeID }),
  output: nodeDrain,
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "NODE_NOT_FOUND", "NODE_LOST"],
});

export const removeNode = operation({
  name: "removeNode",
  method: "DELETE",
  path: "/nodes/{nodeID}",
  summary: "Removes a stopped node from the deployment, or declares one dead whose machine is lost",
  input: z.object({
    nodeID,
    dead: z
      .union([z.boolean(), z.stringbool()])
      .default(false)
      .describe("What ran on it is lost, also where its processes still run; a node that returns ends them"),
  }),
  output: z.undefined(),
  success: 204,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "INVALID_REQUEST", "NODE_NOT_FOUND", "ETCD_UNAVAILABLE"],
});

/** The operations that every node serves; a gateway forwards them. */
export const nodeControlOperations = { setNodeStatus, getNodeDrain, removeNode } as const;
