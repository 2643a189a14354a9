// The node's own name among others: made once, kept in its home.
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { nodeIDForm } from "@svc/contract/cluster-records.ts";
import { fail } from "@svc/contract/failures.ts";
import { readOrGenerateSecretFile } from "@svc/kit/secret.ts";

/** @throws SETTING_INVALID where the file with the node's name holds something else. */
export function nodeIDOf(home: string): string {
  const path = join(home, "node-id");
  const { secret: nodeID } = readOrGenerateSecretFile(path, () => `node-${randomBytes(6).toString("hex")}`);
  if (!nodeIDForm.safeParse(nodeID).success)
    fail("SETTING_INVALID", `${path}: expected a-z, 0-9 and '-', got ${JSON.stringify(nodeID.slice(0, 80))}; remove the file for a new name`);
  return nodeID;
}
