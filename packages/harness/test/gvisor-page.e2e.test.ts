// docs/gvisor.md says what differs from Linux: its rows are what a probe meets in a real sandbox.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { SvcClient } from "@svc/contract/client.ts";
import type { EnvdClient } from "@svc/contract/envd.ts";
import { needs } from "../src/needs.ts";
import { type NodeOptions, startNode } from "../src/node.ts";

const probe = readFileSync(fileURLToPath(new URL("../src/linux-probe.py", import.meta.url)));
const page = readFileSync(fileURLToPath(new URL("../../../docs/gvisor.md", import.meta.url)), "utf8");
/** More than the probe's own time between the two looks. */
const PAUSED_MS = 4000;

/** The table's first and third column. */
const rows = new Map([...page.matchAll(/^\| `([a-z-]+)` \|[^|]*\| `([^`]+)`/gm)].map(([, name, said]) => [name as string, said as string] as const));

async function output(envd: EnvdClient, args: readonly string[]): Promise<string> {
  let said = "";
  let errors = "";
  for await (const event of envd.start({ cmd: "python3", args, user: "root", stdin: false })) {
    if (event.type === "stdout") said += event.data.toString();
    if (event.type === "stderr") errors += event.data.toString();
    if (event.type === "end") assert.equal(event.exitCode, 0, errors);
  }
  return said;
}

async function openSandbox(runtime: NonNullable<NodeOptions["runtime"]>) {
  const node = await startNode({ runtime });
  const client = new SvcClient({ baseURL: node.url, apiKey: node.apiKey });
  const sandbox = await client.create({ templateID: "base", timeout: 3600 });
  const envd = client.envd(sandbox);
  return {
    client,
    envd,
    sandboxID: sandbox.sandboxID,
    async probe() {
      await envd.upload("/tmp/probe.py", probe);
      return JSON.parse(await output(envd, ["/tmp/probe.py"])) as Record<string, string>;
    },
    async [Symbol.asyncDispose]() {
      envd.close();
      await node[Symbol.asyncDispose]();
    },
  };
}

void test("each row of the page on gVisor is what a program meets in a sandbox", needs("root", "runsc", "envd", "base"), async () => {
  await using sandbox = await openSandbox("gvisor");
  const met = await sandbox.probe();
  for (const [name, said] of rows) if (name !== "boot-clock") assert.equal(met[name], said, `row ${name} of docs/gvisor.md`);
  assert.ok(rows.size > 20, `${rows.size} rows were read`);

  // During a pause, CLOCK_BOOTTIME stands still and the wall clock continues.
  const ahead = async () => Number(await output(sandbox.envd, ["-c", "import time; print(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME))"]));
  const before = await ahead();
  await sandbox.client.pause(sandbox.sandboxID);
  await sleep(PAUSED_MS);
  await sandbox.client.resume(sandbox.sandboxID);
  const behindMs = ((await ahead()) - before) * 1000;
  assert.equal(rows.get("boot-clock"), behindMs >= PAUSED_MS ? "stands still" : "goes on", `${behindMs} ms`);
});

void test("on a driver with the host's kernel the same probe meets Linux's behaviour", needs("root", "runc", "envd", "base"), async () => {
  await using sandbox = await openSandbox("runc");
  const met = await sandbox.probe();
  const expected = {
    "sparse-du": "its data",
    "punch-hole": "works",
    "seek-data": "works",
    "sysctl-read": "works",
    "long-argument": "E2BIG",
    setfsuid: "works",
  };
  for (const [name, said] of Object.entries(expected)) assert.equal(met[name], said, name);
});
