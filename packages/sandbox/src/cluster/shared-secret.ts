// The deployment secret as nodes share it: the first node makes it and seals it under the API key in etcd; a new API key seals it again.
import { randomBytes } from "node:crypto";
import { type clusterKeys, type DeploymentRecord, deploymentRecord } from "@svc/contract/cluster-records.ts";
import { fail } from "@svc/contract/failures.ts";
import type { Etcd } from "@svc/kit/etcd/client.ts";
import { isAbsent } from "@svc/kit/etcd/transaction.ts";
import { fingerprintOf, replaceSecretFile } from "@svc/kit/secret.ts";
import { seal, unseal } from "../secrets/seal.ts";
import { deploymentSecretPath, givenSecret, newSecret, secretOfHome } from "./deployment-secret.ts";

export type SharedSecretParts = {
  readonly etcd: Pick<Etcd, "get" | "transact">;
  readonly keys: ReturnType<typeof clusterKeys>;
  readonly home: string;
  readonly apiKey: string;
  /** The setting node.deployment_secret_file. */
  readonly settingPath: string;
};

export type Shared = { readonly deploymentID: string; readonly secret: string };

const PURPOSE = "deployment-secret";
/** Bounds the retries when another node changes the record between a read and a write. */
const ATTEMPTS = 20;

/** @throws SETTING_INVALID if this node's secret or API key is not the deployment's. */
export async function shareSecret(parts: SharedSecretParts): Promise<Shared> {
  const { etcd, keys, home } = parts;
  const given = givenSecret(parts.settingPath);
  for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
    const kept = await etcd.get(keys.deployment);
    if (kept === undefined) {
      const secret = given?.secret ?? secretOfHome(home)?.secret ?? newSecret();
      const record = recordOf(parts, randomBytes(8).toString("hex"), secret, given !== undefined);
      const { succeeded } = await etcd.transact({ if: [isAbsent(keys.deployment)], do: [{ put: keys.deployment, value: JSON.stringify(record) }] });
      if (!succeeded) continue;
      return keepInHome(home, { deploymentID: record.deploymentID, secret }, given !== undefined);
    }
    const record = deploymentRecord.parse(JSON.parse(kept.value));
    const { secret, isToSeal } = open(parts, record, given?.secret);
    if (isToSeal) {
      const next = recordOf(parts, record.deploymentID, secret, false);
      const changed = await etcd.transact({
        if: [{ key: keys.deployment, modRevision: kept.modRevision }],
        do: [{ put: keys.deployment, value: JSON.stringify(next) }],
      });
      if (!changed.succeeded) continue;
    }
    return keepInHome(home, { deploymentID: record.deploymentID, secret }, given !== undefined);
  }
  return fail("ETCD_REFUSED", `the record ${keys.deployment} changed ${ATTEMPTS} times while it was read; start the node again`);
}

function open(parts: SharedSecretParts, record: DeploymentRecord, given: string | undefined): { secret: string; isToSeal: boolean } {
  const own = given ?? (record.sealed === undefined ? undefined : unseal(record.sealed, parts.apiKey, PURPOSE)) ?? secretOfHome(parts.home)?.secret;
  if (own !== undefined && fingerprintOf(own, PURPOSE) === record.fingerprint) {
    const isSealedHere = record.sealed !== undefined && unseal(record.sealed, parts.apiKey, PURPOSE) === own;
    return { secret: own, isToSeal: record.sealed !== undefined && !isSealedHere };
  }
  if (given !== undefined)
    fail(
      "SETTING_INVALID",
      `the deployment secret from ${parts.settingPath} is not this deployment's: its fingerprint is ${fingerprintOf(given, PURPOSE)}, expected ${record.fingerprint}`,
    );
  if (record.sealed === undefined)
    fail("SETTING_INVALID", `this deployment's secret comes from a file (fingerprint ${record.fingerprint}); set node.deployment_secret_file to that file`);
  return fail(
    "SETTING_INVALID",
    `the API key of this node (fingerprint ${fingerprintOf(parts.apiKey, "api-key")}) is not the deployment's (fingerprint ${record.sealedUnder ?? "unknown"}), with which its secret in etcd is encrypted: give this node that key; if the key was changed, first start a node that was a member before`,
  );
}

function recordOf({ apiKey }: SharedSecretParts, deploymentID: string, secret: string, isGiven: boolean): DeploymentRecord {
  return {
    version: 1,
    deploymentID,
    fingerprint: fingerprintOf(secret, PURPOSE),
    ...(isGiven ? {} : { sealed: seal(secret, apiKey, PURPOSE), sealedUnder: fingerprintOf(apiKey, "api-key") }),
  };
}

/** After a change of the API key, a node that still has the secret in its home can seal it under the new key. */
function keepInHome(home: string, shared: Shared, isGiven: boolean): Shared {
  if (!isGiven && secretOfHome(home)?.secret !== shared.secret) replaceSecretFile(deploymentSecretPath(home), shared.secret);
  return shared;
}
