// Several masters and their etcd for tests: each a process with its own ports, to kill, stop and start again.

import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { endWithUs } from "@svc/harness/children.ts";
import { startEtcd, type TestEtcd } from "@svc/harness/etcd.ts";
import { freeze, thaw } from "@svc/harness/freeze.ts";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import type { PeerCerts } from "@svc/harness/peer-certs.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { until } from "@svc/harness/until.ts";
import { RpcClient } from "../src/rpc/client.ts";
import type { Expected } from "../src/rpc/schema.ts";

const MAIN = fileURLToPath(new URL("../src/master/main.ts", import.meta.url));

export type HaNode = {
  readonly name: string;
  readonly url: string;
  readonly rpcPort: number;
  readonly home: string;
  readonly pid: number;
  readonly isRunning: boolean;
  /** Returns its stderr. */
  log(): string;
  rpc(): Promise<RpcClient>;
  /** Resolves once the process is stopped, until `thaw`. */
  freeze(): Promise<void>;
  thaw(): void;
  kill(signal?: NodeJS.Signals): Promise<void>;
  start(more?: readonly string[]): Promise<void>;
  ask(path: string, init?: RequestInit): Promise<{ status: number; text: string }>;
  ha(): Promise<HaView>;
  /** HOST:PORT of its port of TLS. */
  tls(): string;
};
export type HaView = {
  name: string;
  role: "leader" | "standby";
  state: string;
  reason: string;
  epoch: number;
  leader: { name: string; rpc: string; http: string; stream: string; tls?: string } | null;
  view_version: number;
  in_sync: string[];
  standbys: { name: string; state: string; in_sync: boolean; lag: number }[];
  records: number;
  committed_records: number;
};

export type Cluster = AsyncDisposable & {
  readonly etcd: TestEtcd;
  readonly clusterID: string;
  /** `etcd://HOST:PORT` for clients. */
  readonly address: string;
  readonly nodes: readonly HaNode[];
  node(name: string): HaNode;
  /** Waits for the node that leads and serves. */
  leader(): Promise<HaNode>;
  /** Waits until that number of standbys is in sync. */
  inSync(standbys: number): Promise<HaNode>;
};

export type ClusterSetup = {
  readonly masters?: number;
  /** With these, etcd needs a certificate of its clients. */
  readonly certs?: PeerCerts;
  readonly flags?: readonly string[];
  readonly flagsOf?: (name: string) => readonly string[];
  readonly level?: string;
  /** Runs before the first master starts. */
  prepare?(etcd: TestEtcd): Promise<void>;
  readonly endpoints?: (etcd: TestEtcd, name: string) => readonly string[];
};

export async function startCluster({
  masters = 2,
  certs,
  flags = [],
  flagsOf = () => [],
  level = "info",
  prepare,
  endpoints = (etcd) => etcd.endpoints,
}: ClusterSetup = {}): Promise<Cluster> {
  const etcd = await startEtcd(1, certs);
  await prepare?.(etcd);
  const clusterID = "test";
  const names = ["ada", "bob", "cyd"].slice(0, masters);
  const ports = await freePorts(3 * masters);
  const nodes: HaNode[] = names.map((name, at) => {
    const own = [
      `--etcd_endpoints=${endpoints(etcd, name)
        .map((each) => each.replace("http://", ""))
        .join(";")}`,
      ...(certs === undefined ? [] : [`--peer-certs=${certs.issue("master", name)}`, "--tls-port=0"]),
      ...flags,
      ...flagsOf(name),
    ];
    return haNode({ name, ports: ports.slice(3 * at, 3 * at + 3), flags: own, level, clusterID });
  });
  async function leader(): Promise<HaNode> {
    return until(
      "a master leads and serves",
      async () => {
        const running = nodes.filter(({ isRunning }) => isRunning);
        const views = await Promise.all(running.map(async (node) => ({ node, view: await node.ha().catch(() => undefined) })));
        // A node that was frozen may not know yet that another one leads.
        const newest = Math.max(...views.map(({ view }) => view?.epoch ?? 0));
        return views.find(({ view }) => view?.role === "leader" && view.state === "serving" && view.epoch === newest)?.node;
      },
      5,
    );
  }
  try {
    // The first node leads.
    for (const node of nodes) await node.start();
  } catch (error) {
    for (const node of nodes) await node.kill();
    await etcd[Symbol.asyncDispose]();
    throw error;
  }
  return {
    etcd,
    clusterID,
    address: `etcd://${etcd.endpoints.map((each) => each.replace("http://", "")).join(";")}`,
    nodes,
    node: (name) => nodes.find((each) => each.name === name) as HaNode,
    leader,
    async inSync(standbys) {
      return until(
        `${standbys} standbys are in sync`,
        async () => {
          const node = await leader();
          const view = await node.ha().catch(() => undefined);
          return view?.in_sync.length === standbys ? node : undefined;
        },
        10,
      );
    },
    async [Symbol.asyncDispose]() {
      for (const node of nodes) {
        await node.kill();
        removeHome(node.home);
      }
      await etcd[Symbol.asyncDispose]();
    },
  };
}

type NodeSetup = { name: string; ports: readonly number[]; flags: readonly string[]; level: string; clusterID: string };

function haNode({ name, ports, flags, level, clusterID }: NodeSetup): HaNode {
  const home = makeHome();
  const [rpcPort = 0, httpPort = 0, streamPort = 0] = ports;
  const url = `http://127.0.0.1:${httpPort}`;
  let child: ChildProcess | undefined;
  let said = "";
  async function start(more: readonly string[] = []): Promise<void> {
    const own = [
      `--listen=127.0.0.1:${httpPort}`,
      `--rpc_port=${rpcPort}`,
      "--rpc_address=127.0.0.1",
      `--store.replication_port=${streamPort}`,
      `--home=${home}`,
      "--brand=svc,mooncake",
      "--enable_ha=true",
      `--cluster_id=${clusterID}`,
      `--name=${name}`,
      `--log-level=${level}`,
      // A machine that stalls for a while is not a fault; tests of silence set times of their own.
      "--store.takeover_after_ms=5000",
      "--store.standby_timeout_ms=5000",
    ];
    const started = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", MAIN, ...own, ...flags, ...more], { stdio: ["ignore", "pipe", "pipe"] });
    child = started;
    endWithUs(started);
    started.stderr.setEncoding("utf8").on("data", (chunk: string) => void (said += chunk));
    await new Promise<void>((resolve, reject) => {
      let text = "";
      started.stdout.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
        said += chunk;
        if (/ready at/.test(text)) resolve();
      });
      started.once("exit", (code) => reject(new Error(`master ${name} ended with ${code}: ${said}`)));
    });
  }
  async function ask(path: string, init: RequestInit = {}): Promise<{ status: number; text: string }> {
    const answer = await fetch(`${url}${path}`, { ...init, signal: AbortSignal.timeout(10_000) });
    return { status: answer.status, text: await answer.text() };
  }
  return {
    name,
    url,
    rpcPort,
    home,
    get pid() {
      return child?.pid ?? 0;
    },
    get isRunning() {
      return child !== undefined && child.exitCode === null && child.signalCode === null;
    },
    log: () => said,
    rpc: () => RpcClient.connect("127.0.0.1", rpcPort, { connectMs: 1000, callMs: 5000 }),
    freeze: () => freeze(child?.pid as number),
    thaw: () => thaw(child?.pid as number),
    async kill(signal = "SIGKILL") {
      const ending = child;
      child = undefined;
      if (ending === undefined || ending.exitCode !== null || ending.signalCode !== null) return;
      const ended = new Promise((resolve) => ending.once("exit", resolve));
      ending.kill(signal);
      await ended;
    },
    start,
    ask,
    tls: () => /store master TLS at (\S+)/.exec(said.slice(said.lastIndexOf("store master RPC at")))?.[1] ?? "",
    ha: async () => JSON.parse((await ask("/api/v1/ha")).text) as HaView,
  };
}

const NOT_NOW = -1010;

/** Repeats the call while the master has had no contact for half a second, as after its machine stalled: it must not answer then. */
export async function whenHeard<Value>(ask: () => Promise<Expected<Value>>): Promise<Expected<Value>> {
  return until(
    "an answer of a master that is heard",
    async () => {
      const outcome = await ask();
      return !outcome.ok && outcome.code === NOT_NOW ? undefined : outcome;
    },
    20,
  );
}

export const logFolder = (node: HaNode) => join(node.home, "store");
