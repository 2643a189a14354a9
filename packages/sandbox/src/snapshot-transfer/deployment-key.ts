// Derives the key that seals manifests, and names a home in object storage.
import { createHmac, type KeyObject, randomBytes } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { InitKeys } from "../agent/init-keys.ts";
import type { Deployment } from "./manifest.ts";

/** The nodes of a deployment share the seeds of envd's keys; the sealing key is derived from a seed and unknown to envd. */
export const deploymentOf = (initKeys: InitKeys): Deployment => ({
  key: codeKeyOf(seedOf(initKeys.signer(initKeys.current))),
  keys: () => initKeys.seeds().map(codeKeyOf),
  isOurs: initKeys.has,
});

const codeKeyOf = (seed: string) => createHmac("sha256", seed).update("svc:transfer:v1").digest("hex");
/** The last 32 bytes of an exported Ed25519 key are its seed. */
const seedOf = (key: KeyObject) => key.export({ format: "der", type: "pkcs8" }).subarray(-32).toString("hex");

export async function storageIDOf(folder: string): Promise<string> {
  const path = join(folder, "node-id");
  const kept = await readFile(path, "utf8").catch(() => "");
  if (/^[0-9a-f]{24}$/.test(kept)) return kept;
  const made = randomBytes(12).toString("hex");
  await writeFile(path, made);
  return made;
}
