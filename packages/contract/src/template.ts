// Templates as the public API shows them: what sandboxes start from.
import { z } from "zod";
import { operation } from "./operation.ts";

export const listedTemplate = z.object({
  templateID: z.string(),
  buildID: z.string(),
  cpuCount: z.number().int(),
  memoryMB: z.number().int(),
  diskSizeMB: z.number().int(),
  public: z.boolean(),
  aliases: z.array(z.string()),
  names: z.array(z.string()),
  createdAt: z.string(),
  updatedAt: z.string(),
  createdBy: z.null(),
  lastSpawnedAt: z.string().nullable(),
  spawnCount: z.number().int(),
  buildCount: z.number().int(),
  envdVersion: z.string(),
  buildStatus: z.enum(["waiting", "building", "ready", "error"]),
});

export const listTemplates = operation({
  name: "listTemplates",
  method: "GET",
  path: "/templates",
  summary: "Lists the templates",
  input: z.object({ teamID: z.string().optional() }),
  output: z.array(listedTemplate),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED"],
});
