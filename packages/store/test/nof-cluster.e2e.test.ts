// NOF segments with a standby that takes over, in the REST service and on the command line.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { freePorts } from "@svc/harness/ports.ts";
import { until } from "@svc/harness/until.ts";
import { openClient } from "./client.ts";
import { startCluster } from "./ha-cluster.ts";
import { quietFlags } from "./ha-rounds.ts";
import { startMaster } from "./master.ts";
import { MIB, nofEntry, nofFlags } from "./nof.ts";
import { startService } from "./service.ts";
import { bytesOf, makeFolder } from "./ssd.ts";

const CLI = fileURLToPath(new URL("../src/cli/main.ts", import.meta.url));
const only = { replicas: 0, nofReplicas: 1 };

void test("a standby knows NOF replicas, serves them once it leads, and is refused by name without enable_nof", async () => {
  await using folder = makeFolder();
  await using cluster = await startCluster({ flags: [...quietFlags, "--enable_nof=true"] });
  const first = await cluster.inSync(1);
  const open = (options: object) => openClient({ rpcPort: 0 }, { master: cluster.address, clusterID: cluster.clusterID, timeoutMs: 60_000, ...options });
  await using _holder = await open({ nof: { file: join(folder.path, "namespace"), bytes: 16 * MIB } });
  await using client = await open({ knownPlaces: 0 });
  for (let at = 0; at < 20; at++) await client.put(`key-${at}`, bytesOf(`key-${at}`, 5000), only);
  await client.remove("key-3", true);
  await first.kill();
  const second = await cluster.leader();
  assert.notEqual(second.name, first.name);
  for (const at of [0, 2, 4, 19]) assert.ok((await client.get(`key-${at}`))?.equals(bytesOf(`key-${at}`, 5000)), `key-${at}`);
  assert.equal(await client.get("key-3"), undefined);
  assert.equal((await nofEntry(second, "key-0")).nof_values?.length, 1);
  assert.equal(await client.put("later", bytesOf("later", 5000), only), true);
  assert.ok((await client.get("later"))?.equals(bytesOf("later", 5000)));
  await first.start(["--enable_nof=false"]);
  await until("it is refused by the setting's name", () => /enable_nof is on here, off at the standby/.test(second.log()) || undefined);
});

async function svc(...words: string[]): Promise<{ code: number | null; out: string; err: string }> {
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", CLI, ...words], { stdio: ["ignore", "pipe", "pipe"] });
  let [out, err] = ["", ""];
  child.stdout.on("data", (chunk: Buffer) => void (out += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => void (err += chunk.toString()));
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  return { code, out, err };
}

void test("the service mounts a NOF segment by its settings, keeps it across a kill, and the commands show its objects", async () => {
  await using folder = makeFolder();
  const file = join(folder.path, "namespace");
  await using master = await startMaster({ flags: nofFlags() });
  const [port = 0] = await freePorts(1);
  const flags = ["--global_segment_size=16mb", `--nof_path=${file}`, "--nof_size=16mb", `--local_hostname=127.0.0.1:${port}`, "--stable_id=holder"];
  await using service = await startService({ master: master.rpcPort, flags });
  const at = ["--master", `127.0.0.1:${master.rpcPort}`, "--url", master.url, "--output", "table"];
  const value = join(folder.path, "value");
  writeFileSync(value, bytesOf("value", 70_000));
  const put = await svc("put", "k", value, "--nof-replicas", "1", ...at);
  assert.equal(put.code, 0, put.err);
  assert.match(put.out, /stored on .*nof\/[0-9a-f-]{36}/);
  const segments = await svc("segments", ...at);
  assert.match(segments.out, /nof\/[0-9a-f-]{36} .* nvmeof +MOUNTED/);
  assert.match((await svc("replicas", "k", ...at)).out, /nvmeof\/127\.0\.0\.1:\d+\/nof-\S+ .* nvmeof/);
  assert.match(await (await fetch(`${master.url}/metrics/summary`)).text(), /NVMe-oF SSD: 73728 B \/ \d+ B/);
  await service.kill();
  await using _again = await startService({ master: master.rpcPort, flags });
  const got = await until("it can be read again", async () => {
    const { code, out } = await svc("get", "k", join(folder.path, "copy"), "--force", ...at);
    return code === 0 ? out : undefined;
  });
  assert.equal(got, "");
  assert.equal((await nofEntry(master, "k")).nof_values?.length, 1);
  assert.match((await svc("put", "k2", value, "--nof-replicas", "x", ...at)).err, /--nof-replicas: expected a whole number/);
});
