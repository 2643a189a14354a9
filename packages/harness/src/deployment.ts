// Nodes of one deployment over a real etcd, with a shared key and seed, and their records in etcd.
import { clusterKeys, type LiveRecord, liveRecord, type NodeRecord, nodeRecord } from "@svc/contract/cluster-records.ts";
import { type Etcd, openEtcd } from "@svc/kit/etcd/client.ts";
import { openLog } from "@svc/kit/log.ts";
import { PeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { startEtcd, type TestEtcd } from "./etcd.ts";
import { type NodeOptions, startNode, type TestNode } from "./node.ts";
import type { PeerCerts } from "./peer-certs.ts";
import { until } from "./until.ts";

export type Deployment = AsyncDisposable & {
  readonly server: TestEtcd;
  readonly etcd: Etcd;
  readonly keys: ReturnType<typeof clusterKeys>;
  /** Returns the options for a node of this deployment. */
  options(more?: NodeOptions): NodeOptions;
  start(more?: NodeOptions): Promise<TestNode>;
  nodes(): Promise<NodeRecord[]>;
  lives(): Promise<LiveRecord[]>;
  /** Returns the record of the node at this URL once `holds` accepts it. */
  nodeAt(url: string, what: string, holds: (record: NodeRecord) => boolean): Promise<NodeRecord>;
};

export const DEPLOYMENT_KEY = "k".repeat(40);
export const DEPLOYMENT_SEED = "s".repeat(40);

/** `leaseSeconds` and `deadAfterSeconds` are settings of its nodes; with `certs`, nodes and etcd need certificates of that authority. */
export async function startDeployment(leaseSeconds = 10, deadAfterSeconds = 60, certs?: PeerCerts): Promise<Deployment> {
  const server = await startEtcd(1, certs);
  const own = certs?.issue("client");
  const certificates = own === undefined ? undefined : new PeerCertificates({ directory: own, log: openLog("test", "silent") });
  const etcd = openEtcd({ endpoints: server.endpoints, attemptMs: 10_000, callMs: 60_000, certificates });
  let count = 0;
  const keys = clusterKeys("default");
  const records = async <T>(prefix: string, parse: (value: unknown) => T) => (await etcd.list(prefix)).entries.map(({ value }) => parse(JSON.parse(value)));
  const nodes = () => records(keys.nodes, (value) => nodeRecord.parse(value));
  const options = (more: NodeOptions = {}): NodeOptions => ({
    runtime: "gvisor",
    isSecure: certs !== undefined,
    ...more,
    env: { SVC_API_KEY: DEPLOYMENT_KEY, SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: DEPLOYMENT_SEED, ...more.env },
    flags: [
      `--etcd=${server.endpoints.join(",")}`,
      `--cluster.lease_seconds=${leaseSeconds}`,
      `--cluster.dead_after_seconds=${deadAfterSeconds}`,
      ...(certs === undefined ? [] : [`--peer-certs=${certs.issue("node", `node-${++count}`)}`]),
      ...(more.flags ?? []),
    ],
  });
  return {
    server,
    etcd,
    keys,
    options,
    start: (more) => startNode(options(more)),
    nodes,
    lives: () => records(keys.lives, (value) => liveRecord.parse(value)),
    nodeAt: (url, what, holds) => until(`the node at ${url} ${what}`, async () => (await nodes()).find((record) => record.url === url && holds(record))),
    async [Symbol.asyncDispose]() {
      await etcd.close();
      certificates?.close();
      await server[Symbol.asyncDispose]();
    },
  };
}
