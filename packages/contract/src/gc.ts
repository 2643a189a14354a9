// `svc gc`: what retention rules remove, and what nobody needs any more.
import { z } from "zod";
import { operation } from "./operation.ts";

const count = z.number().int().min(0);

export const removedItem = z.object({
  nodeID: z.string(),
  kind: z.enum(["snapshot", "paused", "build"]),
  id: z.string(),
  name: z.string().describe("Its first name, or ''"),
  sizeBytes: count,
  at: z.string().describe("When it was made, or paused"),
  rule: z.string().describe("The rule of the settings that removes it"),
});
export type RemovedItem = z.output<typeof removedItem>;

export const unneeded = z.object({
  nodeID: z.string(),
  builds: count,
  images: count,
  layers: count,
  files: count.describe("Uploads of COPY steps"),
  chunks: z.enum(["none", "started"]).describe("Chunks of object storage are collected in the background; the node's log says how many"),
});

export const gcAnswer = z.object({
  dryRun: z.boolean(),
  items: z.array(removedItem).describe("Removed, or with dryRun what would be lost"),
  failed: z.array(z.object({ id: z.string(), message: z.string() })),
  more: z.boolean().describe("Rules remove more than one call does; call again"),
  unneeded: z.array(unneeded).describe("Empty with dryRun"),
});
export type GCAnswer = z.output<typeof gcAnswer>;

export const collectGarbage = operation({
  name: "collectGarbage",
  method: "POST",
  path: "/gc",
  summary: "Removes what the retention rules of the settings name, and what nobody needs; or says what the rules would remove",
  input: z.object({ dryRun: z.boolean().default(false) }),
  output: gcAnswer,
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "INVALID_REQUEST"],
});
