// `svc template pull`: nodes fetch a template or snapshot before anybody starts a sandbox of it there.
import { z } from "zod";
import { operation } from "./operation.ts";

export const pullState = z.enum(["ready", "fetching", "failed", "absent"]);

export const pulledNode = z.object({
  nodeID: z.string(),
  state: pullState.describe("absent: the node does not have it and was not asked to fetch it; failed: `message` says why"),
  message: z.string(),
  seconds: z.number().min(0).describe("How long the fetch has taken"),
});
export type PulledNode = z.output<typeof pulledNode>;

const label = /^[A-Za-z0-9][\w./-]{0,62}=[\w./:-]{0,200}$/;
const input = z.object({
  templateID: z.string().min(1).max(256).describe("A template or snapshot: id, name or name:tag"),
  nodeLabels: z
    .string()
    .max(4_096)
    .refine((text) => text.split(",").every((each) => label.test(each)), "nodeLabels: expected NAME=VALUE, joined by commas")
    .optional()
    .describe("Only nodes that have all these labels; default: every node"),
});
const output = z.object({ nodes: z.array(pulledNode), missingNodes: z.array(z.string()).describe("Nodes that do not answer, whatever their labels") });
export type PullAnswer = z.output<typeof output>;

export const pullTemplate = operation({
  name: "pullTemplate",
  method: "POST",
  path: "/templates/{templateID}/pull",
  summary: "Nodes with these labels begin to fetch a template or snapshot; the answer says how each stands",
  input,
  output,
  success: 202,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "INVALID_REQUEST", "TOO_MANY_REQUESTS"],
});

export const getPull = operation({
  name: "getPull",
  method: "GET",
  path: "/templates/{templateID}/pull",
  summary: "How the fetches of a template or snapshot stand, by node",
  input,
  output,
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "INVALID_REQUEST"],
});

export const pullOperations = { pullTemplate, getPull } as const;

/** Returns true if a node with these labels (NAME=VALUE) has all that the text names. */
export function hasNodeLabels(own: readonly string[], wanted: string | undefined): boolean {
  return wanted === undefined || wanted.split(",").every((each) => own.includes(each));
}
