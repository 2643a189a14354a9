// The images of the container file under a real containerd: each server starts from its image and answers /health.
import assert from "node:assert/strict";
import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { call } from "@svc/contract/call.ts";
import { listNodes } from "@svc/contract/nodes.ts";
import { createSandbox, deleteSandbox } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { type Containerd, type ContainerOptions, type Images, openImages, startContainerd } from "../src/containerd.ts";
import { containerStages } from "../src/deploy-files.ts";
import { startEtcd, type TestEtcd } from "../src/etcd.ts";
import { needs } from "../src/needs.ts";
import { freePorts } from "../src/ports.ts";
import { until } from "../src/until.ts";

const KEY = "k".repeat(40);
const SEED = "s".repeat(40);
/** The user of images that need no privileges. */
const UID = 10_001;
const host = needs("root", "buildah", "containerd", "ctr", "runc", "base", "etcd", "tar");

/** Like in Kubernetes, arguments replace only the image's CMD; containerd's client replaces the ENTRYPOINT, too. */
function entryOf(target: string): readonly string[] {
  const stage = containerStages().find(({ name }) => name === target);
  return JSON.parse(stage?.instructions.find(({ word }) => word === "ENTRYPOINT")?.rest ?? "[]") as string[];
}

void describe("the images under containerd", host, () => {
  const stack = new AsyncDisposableStack();
  const folder = mkdtempSync(join(tmpdir(), "svc-images-test-"));
  let images: Images;
  let containerd: Containerd;
  let etcd: TestEtcd;
  before(async () => {
    chmodSync(folder, 0o755);
    stack.defer(() => rmSync(folder, { recursive: true, force: true }));
    images = stack.use(await openImages());
    etcd = stack.use(await startEtcd());
    containerd = stack.use(await startContainerd());
  });
  after(() => stack.disposeAsync());

  function homeOf(target: string): string {
    const home = join(folder, target);
    mkdirSync(home);
    if (target !== "node") chownSync(home, UID, UID);
    return home;
  }

  /** Returns the server's URL once it answers /health. */
  async function serves(target: string, given: { args: readonly string[]; port: number; more?: Partial<ContainerOptions> }): Promise<string> {
    const image = await containerd.load(await images.archive(target));
    const mounts = { "/var/lib/svc": homeOf(target), ...given.more?.mounts };
    await containerd.start({ image, id: target, ...given.more, args: [...entryOf(target), ...given.args], mounts });
    const url = `http://127.0.0.1:${given.port}`;
    await until(`${target} answers /health`, async () => {
      if (!(await containerd.running()).includes(target)) assert.fail(`${target} ended: ${await containerd.log(target)}`);
      return fetch(`${url}/health`).then(
        ({ ok }) => ok || undefined,
        () => undefined,
      );
    });
    return url;
  }

  void test("the metadata server, the indexer, the store's master and its service start from their images and answer /health", async () => {
    const [metadata = 0, indexer = 0, master = 0, rpc = 0, service = 0] = await freePorts(5);
    await serves("metadata", { port: metadata, args: ["--listen", `127.0.0.1:${metadata}`] });
    await serves("indexer", { port: indexer, args: ["--listen", `127.0.0.1:${indexer}`] });
    const masterArgs = ["--listen", `127.0.0.1:${master}`, "--rpc_address", "127.0.0.1", "--rpc_port", String(rpc)];
    await serves("store-master", { port: master, args: masterArgs });
    const serviceArgs = ["--host", "127.0.0.1", "--port", String(service), "--master_server_address", `127.0.0.1:${rpc}`, "--local_hostname", "127.0.0.1"];
    await serves("store-service", { port: service, args: serviceArgs });
  });

  void test("a node and a gateway start from their images and serve a sandbox", async () => {
    const [node = 0, gateway = 0, metrics = 0] = await freePorts(3);
    const endpoints = etcd.endpoints.join(",");
    const templates = process.env["SVC_TEMPLATES_DIR"] ?? "";
    // Kubernetes mounts these for a privileged container, and compose with `cgroup: host`.
    const mounts = { "/var/cache/svc/templates": templates, "/sys/fs/cgroup": "/sys/fs/cgroup" };
    const env = { SVC_API_KEY: KEY, SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: SEED };
    await serves("node", { port: node, args: ["--listen", `127.0.0.1:${node}`, "--etcd", endpoints], more: { mounts, env, isPrivileged: true } });
    const args = ["--listen", `127.0.0.1:${gateway}`, "--metrics-listen", `127.0.0.1:${metrics}`, "--etcd", endpoints];
    const url = await serves("gateway", { port: gateway, args, more: { env: { SVC_API_KEY: KEY } } });
    const at = { baseURL: url, apiKey: KEY };
    await until("the node", async () => ((await call(listNodes, {}, at)).some(({ status }) => status === "ready") ? true : undefined));
    const { sandboxID } = await call(createSandbox, { templateID: "base" }, at);
    const sandbox = await Sandbox.connect(sandboxID, { apiUrl: url, sandboxUrl: url, apiKey: KEY });
    assert.equal((await sandbox.commands.run("echo from the image")).stdout, "from the image\n");
    await call(deleteSandbox, { sandboxID }, at);
  });
});
