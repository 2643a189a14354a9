// Nodes and gateways of one test, with one key and one seed.
import { nodesOperations } from "@svc/contract/nodes.ts";
import { startGateway, type TestGateway } from "./gateway.ts";
import { type NodeOptions, startNode, type TestNode } from "./node.ts";
import { until } from "./until.ts";

export const KEY = `key-${"k".repeat(40)}`;
const SEED = "first-seed-".repeat(6);

export type FrontedNodes = {
  readonly nodes: readonly TestNode[];
  readonly gateways: readonly TestGateway[];
  /** The first gateway. */
  readonly gateway: TestGateway;
  /** Restarts all processes, with this environment in addition to the original one. */
  restart(signal: NodeJS.Signals, options?: { readonly env: Readonly<Record<string, string>> }): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

export type FrontedNodesOptions = {
  readonly nodes?: number;
  readonly gateways?: number;
  readonly env?: Readonly<Record<string, string>>;
  /** Flags of the gateways. */
  readonly flags?: readonly string[];
  readonly node?: Pick<NodeOptions, "runtime" | "flags">;
};

/** Starts a node that could belong to the deployment. */
export function startMember({ env, ...options }: NodeOptions = {}): Promise<TestNode> {
  return startNode({ runtime: "runc", ...options, env: { SVC_API_KEY: KEY, SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: SEED, ...env } });
}

/** When it resolves, its gateways know all nodes. */
export async function startFrontedNodes({
  nodes: count = 2,
  gateways: front = 1,
  env = {},
  flags = [],
  node = {},
}: FrontedNodesOptions = {}): Promise<FrontedNodes> {
  const nodes = await Promise.all(Array.from({ length: count }, () => startMember({ ...node, env })));
  const apiKey = env["SVC_API_KEY"] ?? KEY;
  const start = () => startGateway({ nodes: nodes.map(({ url }) => url), apiKey, flags });
  const gateways = await Promise.all(Array.from({ length: front }, start));
  await Promise.all(gateways.map((each) => allUp(each)));
  return {
    nodes,
    gateways,
    gateway: gateways[0] as TestGateway,
    async restart(signal, options) {
      await Promise.all([...nodes, ...gateways].map((each) => each.restart(signal, options)));
      await Promise.all(gateways.map((each) => allUp(each)));
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(gateways.map((each) => each[Symbol.asyncDispose]()));
      await Promise.all(nodes.map((each) => each[Symbol.asyncDispose]()));
    },
  };
}

export async function allUp(gateway: TestGateway): Promise<void> {
  await until("all nodes", async () => ((await gateway.call(nodesOperations.listNodes, {})).every(({ status }) => status === "ready") ? true : undefined));
}

/** Starts a gateway in front of two nodes on `runtime`, for suites that use a single address. */
export async function gatewayEntry(runtime: NonNullable<NodeOptions["runtime"]>): Promise<Pick<TestGateway, "url" | "apiKey" | "call"> & AsyncDisposable> {
  const deployment = await startFrontedNodes({ node: { runtime } });
  const { url, apiKey, call } = deployment.gateway;
  return { url, apiKey, call, [Symbol.asyncDispose]: () => deployment[Symbol.asyncDispose]() };
}
