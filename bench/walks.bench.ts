// Counts the files of a server that a request enters: those with functions that run for it and not otherwise. `./svc bench walks`; their
// names go to bench/results/walks.json.
import { writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { EnvdClient } from "@svc/contract/envd.ts";
import { connectSandbox, forkSandbox, pauseSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, listSandboxes } from "@svc/contract/sandbox.ts";
import { buildTemplate, getBuildStatus, requestTemplate } from "@svc/contract/template-build.ts";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { startNode } from "@svc/harness/node.ts";
import { endProcess, startProcess } from "@svc/harness/server-process.ts";
import { until } from "@svc/harness/until.ts";
import { StoreClient } from "../packages/store/src/client/store-client.ts";
import { startMaster } from "../packages/store/test/master.ts";
import { inspectorOf, type Look, lookHere, lookInto } from "./function-coverage.ts";

/** Longer than the slowest of a server's periodic tasks. */
const IDLE_MS = 11_000;
const INDEXER = fileURLToPath(new URL("../packages/indexer/src/main.ts", import.meta.url));
const inspected = { NODE_OPTIONS: "--inspect=127.0.0.1:0" };

type Walks = Readonly<Record<string, () => Promise<unknown>>>;
const entered: Record<string, readonly string[]> = {};

/** `look` covers every process that takes part in the walks. */
async function follow(walks: Walks, look: Look): Promise<void> {
  await look();
  await sleep(IDLE_MS);
  const anyway = await look();
  for (const walk of Object.values(walks)) {
    await walk();
    await look(); // a warm-up, so that lazily loaded modules are not counted
  }
  for (const [name, walk] of Object.entries(walks)) {
    await look();
    await walk();
    const ran = [...(await look())].filter((each) => !anyway.has(each)).map((each) => each.split("#")[0] ?? "");
    const files = [...new Set(ran)].filter((file) => !file.includes("/test/") && !file.startsWith("harness/")).sort();
    const rooms = Map.groupBy(files, (file) => file.replace(/\/[^/]+$/, ""));
    const own = files.filter((file) => !entered.list?.includes(file)).length;
    process.stdout.write(
      `${name.padEnd(8)} ${files.length} files${"list" in walks && name !== "list" ? `, ${own} that a list does not enter` : ""}: ${[...rooms].map(([room, within]) => `${room} ${within.length}`).join(", ")}\n`,
    );
    entered[name] = files;
  }
}

async function ofSandboxes(): Promise<void> {
  await using node = await startNode({ runtime: "gvisor", env: inspected });
  using look = await lookInto(inspectorOf(node.log()));
  const sandbox = await node.call(createSandbox, { templateID: "base", timeout: 300 });
  const envd = new EnvdClient({ baseURL: node.url, sandboxID: sandbox.sandboxID, envdAccessToken: sandbox.envdAccessToken });

  let builds = 0;
  const walks: Walks = {
    list: () => node.call(listSandboxes, {}),
    create: () => node.call(createSandbox, { templateID: "base", timeout: 300 }),
    async command() {
      for await (const _ of envd.start({ cmd: "/bin/true", args: [], stdin: false }));
    },
    fork: () => node.call(forkSandbox, { sandboxID: sandbox.sandboxID, count: 1 }),
    pause: () => node.call(pauseSandbox, { sandboxID: sandbox.sandboxID }),
    resume: () => node.call(connectSandbox, { sandboxID: sandbox.sandboxID, timeout: 300 }),
    async build() {
      const { templateID, buildID } = await node.call(requestTemplate, { name: "walk" });
      await node.call(buildTemplate, { templateID, buildID, fromTemplate: "base", steps: [{ type: "RUN", args: [`touch /tmp/walked-${builds++}`] }] });
      await until("the end of the build", async () => {
        const { status, reason } = await node.call(getBuildStatus, { templateID, buildID });
        if (status === "error") throw new Error(reason?.message);
        return status === "ready" ? true : undefined;
      });
    },
  };
  await follow(walks, look);
  envd.close();
}

/** The client's files run in this process, the master's in its own. */
async function ofStore(): Promise<void> {
  await using master = await startMaster({ env: inspected });
  const ours = await lookHere();
  using its = await lookInto(inspectorOf(master.log()));
  await using client = await StoreClient.open({ master: `127.0.0.1:${master.rpcPort}`, segmentBytes: 64 * 2 ** 20 });
  let puts = 0;
  const value = Buffer.alloc(100_000, 1);
  await follow(
    { put: () => client.put(`walk-${puts++}`, value), get: () => client.get(`walk-${puts - 1}`) },
    async () => new Set([...(await ours()), ...(await its())].filter((each) => each.startsWith("store/") || each.startsWith("transfer/"))),
  );
}

async function ofIndexer(): Promise<void> {
  const home = makeHome();
  let log = "";
  const { child, port } = await startProcess(INDEXER, ["--listen=127.0.0.1:0", `--home=${home}`], inspected, (text) => (log += text));
  const body = JSON.stringify({ model: "m", block_size: 2, token_ids: [1, 2, 3, 4] });
  {
    using look = await lookInto(inspectorOf(log));
    await follow({ query: async () => (await fetch(`http://127.0.0.1:${port}/query`, { method: "POST", body })).text() }, look);
  }
  await endProcess(child, "SIGTERM");
  removeHome(home);
}

await ofSandboxes();
await ofStore();
await ofIndexer();
writeFileSync(`${import.meta.dirname}/results/walks.json`, `${JSON.stringify(entered, null, 2)}\n`);
