// The deployment of the cluster benches: etcd, an object server, nodes and gateways, all on this machine.

import { EnvdClient } from "@svc/contract/envd.ts";
import { listNodes } from "@svc/contract/nodes.ts";
import { DEPLOYMENT_KEY, type Deployment, startDeployment } from "@svc/harness/deployment.ts";
import { startGateway, type TestGateway } from "@svc/harness/gateway.ts";
import type { TestNode } from "@svc/harness/node.ts";
import { type ObjectServer, startObjectServer } from "@svc/harness/object-server.ts";
import { until } from "@svc/harness/until.ts";

export type ClusterOptions = {
  readonly runtime: "gvisor" | "runc" | "bubblewrap";
  readonly nodes: number;
  readonly gateways: number;
  readonly hasObjects: boolean;
  readonly flags: readonly string[];
};

export type Cluster = AsyncDisposable & {
  readonly deployment: Deployment;
  readonly objects: ObjectServer | undefined;
  readonly nodes: readonly TestNode[];
  readonly gateways: readonly TestGateway[];
  allReady(): Promise<void>;
};

export async function startCluster({ runtime, nodes: count, gateways: front, hasObjects, flags }: ClusterOptions): Promise<Cluster> {
  const stack = new AsyncDisposableStack();
  const deployment = stack.use(await startDeployment(10, 60));
  const objects = hasObjects ? stack.use(await startObjectServer()) : undefined;
  const storage = objects === undefined ? [] : ["--objects.url=s3://test/bench", `--objects.endpoint=${objects.endpoint}`];
  const env = objects?.env ?? {};
  const nodes: TestNode[] = [];
  for (let index = 0; index < count; index++) nodes.push(stack.use(await deployment.start({ runtime, env, flags: [...storage, ...flags] })));
  const gateways: TestGateway[] = [];
  for (let index = 0; index < front; index++)
    gateways.push(stack.use(await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY, env, flags: storage })));
  async function allReady(): Promise<void> {
    for (const gateway of gateways) {
      await until("all nodes", async () => {
        const listed = await gateway.call(listNodes, {});
        return listed.length === count && listed.every(({ status }) => status === "ready") ? true : undefined;
      });
    }
  }
  await allReady();
  return { deployment, objects, nodes, gateways, allReady, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

/** Returns the output of a command. @throws if the command does not succeed. */
export async function saidBy(url: string, sandbox: { sandboxID: string; envdAccessToken?: string | undefined }, script: string): Promise<string> {
  const envd = new EnvdClient({ baseURL: url, sandboxID: sandbox.sandboxID, envdAccessToken: sandbox.envdAccessToken });
  try {
    let text = "";
    for await (const event of envd.start({ cmd: "sh", args: ["-c", script], user: "user", stdin: false })) {
      if (event.type === "stdout") text += event.data.toString();
      if (event.type === "end" && event.exited && event.exitCode === 0) return text.trim();
    }
    throw new Error(`"${script}" did not come to a good end`);
  } finally {
    envd.close();
  }
}

export async function timed(work: () => Promise<unknown>): Promise<number> {
  const begin = performance.now();
  await work();
  return performance.now() - begin;
}
