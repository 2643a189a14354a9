// How `svc backup` asks the node of its machine for a copy of its state as of one moment.
import { z } from "zod";
import { operation } from "./operation.ts";

export const stagedVolume = z.object({
  volumeID: z.string(),
  name: z.string(),
  files: z.string().describe("The folder with its files, mounted"),
});

export const stagedBackup = z.object({
  backupID: z.string(),
  nodeID: z.string(),
  folder: z.string().describe("Below the node's home; the caller reads it and removes it"),
  volumes: z.array(stagedVolume).describe("Those on this node's disk; a directory that nodes share is not listed"),
  notInHome: z.array(z.string()).describe("What the node needs and that is not in its home, such as a key from the environment"),
});
export type StagedBackup = z.output<typeof stagedBackup>;

export const stageBackup = operation({
  name: "stageBackup",
  method: "POST",
  path: "/cluster/backup",
  summary: "Copies the node's records as of one moment to a folder of its home and links what they name there, for svc backup on its machine",
  input: z.object({}),
  output: stagedBackup,
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "REQUEST_IN_FLIGHT", "DISK_FULL"],
});
