// A node joins a deployment: it waits for etcd, agrees on secrets, takes its slot and generation, and stays visible until it stops.
import { setTimeout as sleep } from "node:timers/promises";
import { clusterKeys } from "@svc/contract/cluster-records.ts";
import { Failure } from "@svc/contract/failures.ts";
import type { SharedSandbox } from "@svc/contract/shared-records.ts";
import { openEtcd } from "@svc/kit/etcd/client.ts";
import { openKeyEtcd } from "@svc/kit/keys/key-etcd.ts";
import type { KeyStore } from "@svc/kit/keys/keys.ts";
import type { Part } from "@svc/kit/lifecycle.ts";
import type { Log } from "@svc/kit/log.ts";
import type { PeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { PeerClient } from "@svc/kit/peers/peer-client.ts";
import { fingerprintOf } from "@svc/kit/secret.ts";
import type { InitKeys } from "../agent/init-keys.ts";
import type { Catalog } from "../snapshot-transfer/exports.ts";
import type { Neighbours } from "../snapshot-transfer/neighbour.ts";
import { openCatalog } from "./catalog.ts";
import { type DeploymentClock, openDeploymentClock } from "./deployment-clock.ts";
import { keysFrom, type NodeKeys } from "./deployment-secret.ts";
import { enter, homeIdentity } from "./enter.ts";
import { shareInitKeys } from "./init-key-ring.ts";
import { type Members, openMembers } from "./members.ts";
import { readMembership, writeMembership } from "./membership-file.ts";
import { openNeighbours } from "./neighbours.ts";
import { nodeIDOf } from "./node-id.ts";
import { answersBy, type Ownership, openOwnership } from "./ownership.ts";
import { openPresence, type Presence } from "./presence.ts";
import { openReaper } from "./reaper.ts";
import { shareSecret } from "./shared-secret.ts";

export type JoinParts = {
  readonly etcd: readonly string[];
  /** The setting cluster.name. */
  readonly name: string;
  readonly leaseSeconds: number;
  readonly deadAfterSeconds: number;
  readonly home: string;
  readonly apiKey: string;
  readonly seed: string;
  /** The setting node.deployment_secret_file. */
  readonly secretFile: string;
  /** Given if servers of the deployment speak TLS to each other. */
  readonly certificates: PeerCertificates | undefined;
  readonly log: Log;
};

export type Membership = {
  readonly nodeID: string;
  readonly deploymentID: string;
  readonly slot: number;
  readonly generation: number;
  readonly keys: NodeKeys;
  /** An earlier generation was declared dead or removed: its sandboxes must end before this generation serves. */
  readonly isLost: boolean;
  /** Connections to the other nodes. */
  readonly peers: PeerClient;
  readonly presence: Presence;
  readonly members: Members;
  readonly ownership: Ownership;
  readonly catalog: Catalog;
  readonly neighbours: Neighbours;
  readonly clock: DeploymentClock;
  /** The named keys of the deployment, which gateways create and revoke. */
  readonly apiKeys: KeyStore;
  /** The records of sandboxes that can move, read once this generation had begun. */
  readonly shared: ReadonlyMap<string, SharedSandbox>;
  /** The other nodes of the deployment when this generation began. */
  readonly others: readonly string[];
  /** Returns once the other nodes' keys of envd are known here, and ours to them. */
  share(initKeys: InitKeys): Promise<void>;
  /** Called when nothing of an earlier generation runs any more. */
  settled(): void;
  /** Returns the parts to close, in order. */
  parts(): Part[];
};

/** A call to etcd may take this long on a busy machine; no client waits for it. */
const ATTEMPT_MS = 2_000;
const CALL_MS = 8_000;
const RETRY_MS = 1_000;

/** Returns only after etcd has answered, since the node does not know what it still owns before. @throws SETTING_INVALID. */
export async function joinDeployment(parts: JoinParts): Promise<Membership> {
  const { home, apiKey, seed, log } = parts;
  const etcd = openEtcd({ endpoints: parts.etcd, attemptMs: ATTEMPT_MS, callMs: CALL_MS, certificates: parts.certificates });
  const [peers, etcdPeers] = [new PeerClient(parts.certificates, "node"), new PeerClient(parts.certificates, "etcd")];
  const keys = clusterKeys(parts.name);
  const nodeID = nodeIDOf(home);
  try {
    const ownership = openOwnership(etcd, keys, nodeID, answersBy(peers.fetch.bind(peers)));
    const { secret, entered, presence } = await onceEtcdAnswers(log, async () => {
      const shared = await shareSecret({ etcd, keys, home, apiKey, settingPath: parts.secretFile });
      const entered = await enter({ etcd, keys, home, nodeID, deploymentID: shared.deploymentID });
      const fingerprints = { apiKey: fingerprintOf(apiKey, "api-key"), seed: fingerprintOf(seed, "seed") };
      const presence = await openPresence(
        { etcd, keys, leaseSeconds: parts.leaseSeconds, fingerprints, homeIdentity: homeIdentity(home), deploymentID: shared.deploymentID, log },
        entered,
      );
      return { secret: shared, entered, presence };
    });
    // Read after the generation is taken: from then on no other node takes a sandbox over because this node does not serve.
    const [shared, nodes] = await onceEtcdAnswers(log, () => Promise.all([ownership.load(), etcd.list(keys.nodes)]));
    const { slot, generation } = entered.record;
    const deadAfterMs = parts.deadAfterSeconds * 1000;
    const neighbours = openNeighbours(etcd, keys, nodeID, peers);
    const reaper = openReaper({ etcd, keys, nodeID, deadAfterMs, isHeld: presence.isHeld, log });
    const clock = openDeploymentClock({
      nodeID,
      etcd: etcd.endpoints,
      fetch: { etcd: etcdPeers.fetch.bind(etcdPeers), nodes: peers.fetch.bind(peers) },
      others: () => neighbours.live.map(({ url }) => url),
      log,
    });
    await onceRead(neighbours);
    await clock.start();
    log.info(
      { nodeID, slot, generation, clockSkewMs: clock.skewMs, deploymentID: secret.deploymentID, wasDeclaredDead: entered.isLost },
      "joined the deployment",
    );
    return {
      nodeID,
      deploymentID: secret.deploymentID,
      slot,
      generation,
      keys: keysFrom(secret.secret),
      isLost: entered.isLost,
      peers,
      presence,
      members: openMembers(etcd, keys),
      ownership,
      catalog: openCatalog(etcd, keys, nodeID),
      neighbours,
      clock,
      apiKeys: openKeyEtcd({ etcd, name: parts.name, log }),
      shared,
      others: nodes.entries.map(({ key }) => key.slice(keys.nodes.length)).filter((each) => each !== nodeID),
      async share(initKeys) {
        await onceEtcdAnswers(log, () => shareInitKeys({ etcd, keys, secret: secret.secret, initKeys, log }));
      },
      settled() {
        const remembered = readMembership(home);
        if (remembered?.isLost === true) writeMembership(home, { ...remembered, isLost: false });
      },
      parts: () => [
        { name: "clock", close: clock.close },
        { name: "reaper", close: reaper.close },
        { name: "neighbours", close: neighbours.close },
        { name: "membership", close: () => presence.close(true) },
        { name: "etcd", close: etcd.close },
      ],
    };
  } catch (error) {
    await etcd.close();
    throw error;
  }
}

/** The wait is bounded: if etcd goes away now, the node starts with its own clock. */
async function onceRead(neighbours: Neighbours): Promise<void> {
  await Promise.race([neighbours.read, sleep(CALL_MS, undefined, { ref: false })]);
}

async function onceEtcdAnswers<T>(log: Log, work: () => Promise<T>): Promise<T> {
  for (let said = ""; ; ) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof Failure) || error.name !== "ETCD_UNAVAILABLE") throw error;
      if (said !== error.message) log.warn({ reason: error.message }, "waiting for etcd: until it answers, this node does not know what it still owns");
      said = error.message;
      await sleep(RETRY_MS);
    }
  }
}
