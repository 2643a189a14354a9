// The commands of deploy/ as images, units and manifests run them: the servers start, answer probes, and stop on request.

import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { resumeSandbox } from "@svc/contract/lifecycle.ts";
import { getNodeDrain, setNodeStatus } from "@svc/contract/node-control.ts";
import { createSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { endWithUs } from "@svc/harness/children.ts";
import { INSTALLED, SERVE, type ServerLine, serverLine, systemdUnits, TREE } from "../src/deploy-files.ts";
import { makeHome, removeHome } from "../src/home.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { ended } from "../src/server-process.ts";
import { UNTIL_BOUND_MS, until } from "../src/until.ts";

const inTree = (path: string) => path.replace(INSTALLED, TREE);
const run = promisify(execFile);
const KEY = "k".repeat(40);

/** The unit's command line, with free ports instead of its own, and the test's home. */
function lineOf(file: string): ServerLine {
  const unit = systemdUnits().find((each) => each.file === file);
  return serverLine(file, (unit?.all("ExecStart")[0] ?? "").split(" "));
}

type Running = { readonly url: string; readonly said: () => string; stop(): Promise<number | string>; readonly child: ChildProcess };

async function start(
  { source, verb, flags }: ServerLine,
  home: string,
  instead: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Running> {
  mkdirSync(home, { recursive: true });
  const child = spawn(inTree(SERVE), [...verb.split(" "), ...flags, "--home", home, ...instead], {
    stdio: ["ignore", "pipe", "pipe"],
    // The environment of a unit or container: no user's home, and none of this machine's variables.
    env: { PATH: process.env["PATH"], SVC_CACHE: process.env["SVC_CACHE"], ...env },
  });
  endWithUs(child);
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream?.on("data", (chunk: Buffer) => void (said += chunk.toString()));
  const url = await until(`${source} is ready`, () => {
    assert.equal(child.exitCode, null, said);
    return /ready at (http:\S+)/.exec(said)?.[1]?.replace("0.0.0.0", "127.0.0.1");
  });
  return {
    child,
    url,
    said: () => said,
    stop() {
      const end = ended(child);
      child.kill("SIGTERM");
      return end;
    },
  };
}

/** Waits until the probe's status is `expected`. */
async function probed({ url }: Running, expected: number): Promise<void> {
  await until(`${url}/health answers ${expected}`, async () => {
    const { status } = await fetch(`${url}/health`, { signal: AbortSignal.timeout(UNTIL_BOUND_MS) });
    return status === expected ? true : undefined;
  });
}

void test("the servers of the cache start with the commands of their units, answer /health, and stop on request", async () => {
  const home = makeHome();
  const started: Running[] = [];
  const up = async (name: string, instead: readonly string[]) => {
    const server = await start(lineOf(`svc-${name}.service`), join(home, name), instead);
    started.push(server);
    return server;
  };
  try {
    await up("metadata", ["--listen", "127.0.0.1:0"]);
    await up("indexer", ["--listen", "127.0.0.1:0"]);
    const master = await up("store-master", ["--listen", "127.0.0.1:0", "--rpc_address", "127.0.0.1", "--rpc_port", "0"]);
    const rpc = /RPC at (\S+)/.exec(master.said())?.[1] ?? "";
    await up("store-service", ["--port", "0", "--master_server_address", rpc, "--global_segment_size", "16mb"]);
    await up("store-admin", ["--listen", "127.0.0.1:0", "--master", rpc]);
    for (const server of started) await probed(server, 200);
    for (const server of started.reverse()) assert.equal(await server.stop(), 0, server.said());
  } finally {
    for (const { child } of started) child.kill("SIGKILL");
    removeHome(home);
  }
});

void test("a gateway that has not found a node yet is not ready, and gives the reason", async () => {
  const home = makeHome();
  const env = { SVC_API_KEY: KEY, SVC_CLUSTER_ETCD: "http://127.0.0.1:9" };
  const gateway = await start(lineOf("svc-gateway.service"), join(home, "gateway"), ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"], env);
  try {
    await probed(gateway, 503);
    assert.match(await (await fetch(`${gateway.url}/health`)).text(), /etcd has not answered/);
    assert.equal(await gateway.stop(), 0, gateway.said());
  } finally {
    gateway.child.kill("SIGKILL");
    removeHome(home);
  }
});

const host = needs("root", "runsc", "envd", "base");

function hook(node: TestNode, name: "before-stop" | "after-start"): Promise<unknown> {
  const env = { PATH: process.env["PATH"], SVC_CACHE: process.env["SVC_CACHE"], SVC_HOME: node.home, SVC_URL: node.url, SVC_API_KEY: node.apiKey };
  return run(inTree(`${INSTALLED}/deploy/drain.sh`), [name], { env });
}
const isDraining = async (node: TestNode) => (await node.call(getNodeDrain, { nodeID: "self" })).isDraining;

void test("a node's sandboxes are paused before its pod stops, and the node is in service again after the next start", host, async () => {
  await using node = await startNode({ runtime: "gvisor" });
  const { sandboxID } = await node.call(createSandbox, { templateID: "base", timeout: 3600 });
  await hook(node, "before-stop");
  assert.equal((await node.call(getSandbox, { sandboxID })).state, "paused");
  await node.restart("SIGTERM");
  assert.equal(await isDraining(node), true);
  await hook(node, "after-start");
  assert.equal(await isDraining(node), false);
  assert.equal(existsSync(join(node.home, "drained-by-stop")), false);
  await node.call(resumeSandbox, { sandboxID, timeout: 600 });
  assert.equal((await node.call(getSandbox, { sandboxID })).state, "running");
});

void test("a drain that an operator began is still in force after the node's pod was replaced", host, async () => {
  await using node = await startNode({ runtime: "gvisor" });
  await node.call(setNodeStatus, { nodeID: "self", status: "draining" });
  await hook(node, "before-stop");
  await node.restart("SIGTERM");
  await hook(node, "after-start");
  assert.equal(await isDraining(node), true);
});

void test("the settings of a node's unit are accepted by a node", needs("root"), async () => {
  const home = makeHome();
  const { verb, flags } = lineOf("svc-node.service");
  try {
    await run(inTree(SERVE), [verb, ...flags, "--home", home, "--destroy-all"]);
  } finally {
    removeHome(home);
  }
});
