// The node's own name, generated once and kept in its home.
import { randomBytes } from "node:crypto";
import { existsSync, renameSync } from "node:fs";
import { join } from "node:path";
import { nodeIDForm } from "@svc/contract/cluster-records.ts";
import { fail } from "@svc/contract/failures.ts";
import { readOrGenerateSecretFile } from "@svc/kit/secret.ts";

/**
 * Replaces a damaged name with a new one on a node without a deployment, and keeps the old file as node-id.damaged.
 * @throws SETTING_INVALID if a member of a deployment has a damaged name, because its slot is recorded under that name.
 */
export function nodeIDOf(home: string): string {
  const path = join(home, "node-id");
  const { secret: nodeID } = readOrGenerateSecretFile(path, newName);
  if (nodeIDForm.safeParse(nodeID).success) return nodeID;
  if (existsSync(join(home, "membership.json")))
    fail("SETTING_INVALID", `${path}: expected a-z, 0-9 and '-', got ${JSON.stringify(nodeID.slice(0, 80))}; remove the file for a new name`);
  renameSync(path, `${path}.damaged`);
  return readOrGenerateSecretFile(path, newName).secret;
}

const newName = () => `node-${randomBytes(6).toString("hex")}`;
