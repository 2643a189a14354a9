// `svc store VERB` as people and scripts run it, against a real master and real services.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { endWithUs } from "@svc/harness/children.ts";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { runStore } from "@svc/harness/store-command.ts";
import { until } from "@svc/harness/until.ts";
import { StoreClient } from "@svc/store/client/store-client.ts";
import { startMaster, type TestMaster } from "./master.ts";
import { startService } from "./service.ts";

const MAIN = fileURLToPath(new URL("../src/cli/main.ts", import.meta.url));
const on = (master: TestMaster) => ({
  raw: (args: readonly string[], input?: Buffer | string) => runStore(master.home, args, input),
  async json<T>(...args: string[]): Promise<T> {
    const { code, stdout, stderr } = await runStore(master.home, [...args, "--output", "json"]);
    assert.equal(code, 0, stderr);
    return JSON.parse(stdout.toString()) as T;
  },
  async text(...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await runStore(master.home, args);
    assert.equal(code, 0, stderr);
    return stdout.toString();
  },
});

void test("a stored file is listed, inspected, read back byte for byte, and removed", async () => {
  await using master = await startMaster({ flags: ["--default_kv_lease_ttl=60s"] });
  await using service = await startService({ master: master.rpcPort, flags: ["--global_segment_size=64mb"] });
  const store = on(master);
  const home = makeHome();
  try {
    const [file, copy] = [join(home, "file"), join(home, "copy")];
    const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, at) => (at * 31) % 256));
    writeFileSync(file, bytes);
    const { segments, ...said } = await store.json<{ segments: string[] }>("put", "models/ünd a", file);
    assert.deepEqual([said, segments.length], [{ key: "models/ünd a", sizeBytes: 300_000, stored: true }, 1]);
    assert.deepEqual((await store.raw(["put", "models/b"], "from stdin")).code, 0);
    assert.match(await store.text("put", "models/b", file), /is there already and keeps its value/);
    assert.equal((await store.raw(["get", "models/ünd a", copy])).code, 0);
    const kept = await store.raw(["get", "models/ünd a", copy]);
    assert.deepEqual([kept.code, kept.stderr.includes("already exists: use --force to replace it")], [2, true], kept.stderr);
    assert.equal((await store.raw(["get", "models/ünd a", copy, "--force"])).code, 0);
    assert.deepEqual(readFileSync(copy), bytes);
    assert.equal((await store.raw(["get", "models/b"])).stdout.toString(), "from stdin");
    assert.equal((await store.raw(["put", "models/b", "--upsert"], "newer")).code, 0);
    assert.equal((await store.raw(["get", "models/b"])).stdout.toString(), "newer");
    assert.equal((await store.raw(["put", "other"], "x")).code, 0);
    const listed = await store.json<{ key: string; sizeBytes: number; replicas: { protocol: string }[] }[]>("ls", "models/");
    assert.deepEqual(listed.map(({ key, sizeBytes, replicas }) => [key, sizeBytes, replicas.length, replicas[0]?.protocol]).sort(), [
      ["models/b", 5, 1, "tcp"],
      ["models/ünd a", 300_000, 1, "tcp"],
    ]);
    const first = await store.raw(["ls", "--limit", "2", "--output", "json"]);
    const cursor = /there are more: --after (\S+)/.exec(first.stderr)?.[1] ?? assert.fail(first.stderr);
    const rest = await store.json<{ key: string }[]>("ls", "--after", cursor);
    assert.deepEqual([...(JSON.parse(first.stdout.toString()) as { key: string }[]), ...rest].map(({ key }) => key).sort(), [
      "models/b",
      "models/ünd a",
      "other",
    ]);
    assert.match(await store.text("stat", "other"), /^KEY +SIZE +CHECKSUM +HOLDERS\nother +1 B +xxh3:[0-9a-f]{16} +127\.0\.0\.1:\d+\n$/);
    assert.equal((await store.json<{ address: string }[]>("replicas", "other")).length, 1);
    assert.match(
      (await store.raw(["rm", "other"])).stderr,
      /removing key other: a reader has a lease on it; try again once it has ended, or remove it by force \(OBJECT_HAS_LEASE, -706\)/,
    );
    assert.deepEqual(await store.json("rm", "other", "--force"), { removed: ["other"], failed: [] });
    assert.match((await store.raw(["get", "other"])).stderr, /key other is not there: removed at 2/);
    assert.match((await store.raw(["stat", "never"])).stderr, /key never is not there: never stored/);
    assert.deepEqual(await store.json("rm", "--match", "^models/", "--force"), { removed: 2 });
    assert.deepEqual(await store.json("ls"), []);
    await service.kill("SIGTERM");
  } finally {
    removeHome(home);
  }
});

void test("a key too long to be asked about stays in the list, without a size, and does not hide the others", async () => {
  await using master = await startMaster();
  await using service = await startService({ master: master.rpcPort, flags: ["--global_segment_size=32mb"] });
  const store = on(master);
  const long = "k".repeat(60_000);
  await using client = await StoreClient.open({ master: `127.0.0.1:${master.rpcPort}` });
  for (const key of ["near", long]) assert.equal(await client.put(key, Buffer.from("value")), true);
  const listed = await store.json<{ key: string; sizeBytes: number | null }[]>("ls");
  assert.deepEqual(listed.map(({ key, sizeBytes }) => [key.length, sizeBytes]).sort(), [
    [4, 5],
    [60_000, null],
  ]);
  const stat = await store.raw(["stat", long]);
  assert.deepEqual([stat.code, /too long to be asked about: expected at most 30 KiB/.test(stat.stderr)], [2, true], stat.stderr);
  await service.kill("SIGTERM");
});

void test("a file larger than a value may be is refused with both sizes before it is read", async () => {
  await using master = await startMaster();
  const home = makeHome();
  try {
    const file = join(home, "large");
    writeFileSync(file, "");
    truncateSync(file, 3 * 2 ** 30); // sparse
    const put = await on(master).raw(["put", "large", file]);
    await using service = await startService({ master: master.rpcPort, flags: ["--global_segment_size=32mb"] });
    truncateSync(file, 40 * 2 ** 20);
    const unfit = await on(master).raw(["put", "large", file]);
    assert.deepEqual([unfit.code, unfit.stderr.includes("one segment can hold, at most 32.0 MiB here, got 40.0 MiB")], [1, true], unfit.stderr);
    await service.kill("SIGTERM");
    assert.deepEqual([put.code, put.stderr.includes(`${file}: expected at most 2.0 GiB, got 3.0 GiB: store it in parts`)], [2, true], put.stderr);
  } finally {
    removeHome(home);
  }
});

void test("a key is copied to another holder and moved off the first, and the tables show the holders", async () => {
  await using master = await startMaster();
  await using one = await startService({ master: master.rpcPort, flags: ["--global_segment_size=32mb"] });
  const store = on(master);
  assert.equal((await store.raw(["put", "k"], "value")).code, 0);
  await using two = await startService({ master: master.rpcPort, flags: ["--global_segment_size=64mb"] });
  await using three = await startService({ master: master.rpcPort, flags: ["--global_segment_size=32mb"] });
  const [first = "", second = "", third = ""] = (await store.json<{ segment_name: string }[]>("segments")).map((row) => row.segment_name);
  const asked = await store.raw(["put", "wide", "--replicas", "5"], "value");
  assert.deepEqual([asked.code, asked.stdout.toString().split(" stored on ")[1]?.trim().split(", ").sort()], [0, [first, second, third].sort()], asked.stderr);
  assert.match(asked.stderr, /expected 5 replicas, placed 3: no other segment has room for one; svc store segments/);
  const near = await store.raw(["put", "near", "--segment", second], "value");
  assert.deepEqual([near.code, near.stdout.toString(), near.stderr], [0, `near: 5 B stored on ${second}\n`, ""]);
  const astray = await store.raw(["put", "astray", "--segment", "nowhere:1"], "value");
  assert.equal(astray.code, 1);
  assert.match(astray.stderr, /--segment: expected the name of a segment, got "nowhere:1": mounted are .*127\.0\.0\.1:\d+; svc store segments lists them/);
  assert.equal((await store.raw(["rm", "wide", "near", "--force"])).code, 0);
  const holders = async () => (await store.json<{ endpoint: string }[]>("replicas", "k")).map(({ endpoint }) => endpoint).sort();
  assert.deepEqual(await holders(), [first]);
  assert.equal((await store.json<{ status: string }>("copy", "k", "--to", second)).status, "succeeded");
  assert.deepEqual(await holders(), [first, second].sort());
  assert.match(await store.text("move", "k", "--from", first, "--to", third), /^move k: done after \d+ ms\n$/);
  assert.deepEqual(await holders(), [second, third].sort());
  const onto = await store.raw(["move", "k", "--from", second, "--to", second]);
  assert.match(onto.stderr, /--to: expected another segment than --from/);
  assert.deepEqual(await holders(), [second, third].sort());
  assert.match((await store.raw(["put", "a\nb"], "value")).stderr, /KEY: expected no line breaks/);
  assert.equal((await store.raw(["get", "k"])).stdout.toString(), "value");
  assert.match(
    (await store.raw(["copy", "k", "--to", "nowhere:1"])).stderr,
    /expected names of mounted segments, got "nowhere:1"; svc store segments lists them/,
  );
  const table = await store.text("segments");
  assert.match(table, /^SEGMENT +ID +SIZE +USED +PROTOCOL +STATUS\n/);
  assert.match(table, new RegExp(`${second} +[0-9a-f-]{36} +64\\.0 MiB +5 B \\(0 %\\) +tcp +MOUNTED`));
  assert.deepEqual(
    (await store.json<{ segments: number; readable: boolean }[]>("clients")).map(({ segments, readable }) => [segments, readable]),
    [
      [1, true],
      [1, true],
      [1, true],
    ],
  );
  const summary = await store.json<Record<string, number>>("summary");
  assert.deepEqual([summary["keys"], summary["capacityBytes"], summary["holders"]], [1, 128 << 20, 3]);
  // The range of the moved replica may cool down before new objects can use it.
  assert.ok([10, 15].includes(summary["usedBytes"] ?? 0), String(summary["usedBytes"]));
  assert.match(await store.text("summary"), /^MASTER +KEYS +USED +OF +HOLDERS/);
  for (const service of [one, two, three]) await service.kill("SIGTERM");
});

void test("a drained segment's keys are on other holders, byte for byte, and it takes no new ones until it is put back into use", async () => {
  await using master = await startMaster();
  await using one = await startService({ master: master.rpcPort, flags: ["--global_segment_size=32mb"] });
  const store = on(master);
  for (let at = 0; at < 20; at++) await one.ask("PUT", "/api/put", { key: `k${at}`, value: `value ${at}` });
  const [first = ""] = (await store.json<{ segment_name: string }[]>("segments")).map((row) => row.segment_name);
  await using two = await startService({ master: master.rpcPort, flags: ["--global_segment_size=32mb"] });
  const drained = await store.raw(["drain", first, "--output", "json"]);
  assert.equal(drained.code, 0, drained.stderr);
  const job = JSON.parse(drained.stdout.toString()) as { job_id: string; status_name: string; succeeded_units: number; failed_units: number };
  assert.deepEqual([job.status_name, job.succeeded_units, job.failed_units], ["SUCCEEDED", 20, 0]);
  assert.ok(drained.stderr.startsWith(`job ${job.job_id}: draining ${first}; svc store drain --cancel ${job.job_id} ends it\n`), drained.stderr);
  const keys = await store.json<{ key: string; replicas: { endpoint: string }[] }[]>("ls");
  assert.equal(keys.length, 20);
  for (const { replicas } of keys) assert.ok(replicas.length === 1 && replicas[0]?.endpoint !== first);
  for (const at of [0, 19]) assert.equal(await (await fetch(`${two.url}/api/get/k${at}`)).text(), `value ${at}`);
  const status = (await store.json<{ segment_name: string; status: string }[]>("segments")).find((row) => row.segment_name === first)?.status;
  assert.equal(status, "DRAINED");
  const statusOf = async () => (await store.json<{ segment_name: string; status: string }[]>("segments")).find((row) => row.segment_name === first)?.status;
  await two.kill("SIGTERM");
  // The remaining segment accepts nothing, and the refusal names the remedy.
  const full = await store.raw(["put", "more"], "value");
  assert.deepEqual([full.code, /no segment that takes objects has room.*svc store undrain puts a drained one back/.test(full.stderr)], [1, true], full.stderr);
  assert.equal(await store.text("undrain", first), `${first} takes objects again\n`);
  assert.equal(await statusOf(), "MOUNTED");
  assert.equal((await store.raw(["put", "more"], "value")).code, 0);
  assert.equal((await store.raw(["get", "more"])).stdout.toString(), "value");
  assert.match(
    (await store.raw(["undrain", "nowhere:1"])).stderr,
    /segments "nowhere:1": the master answered: a segment of that name is not mounted; svc store segments lists them/,
  );
  assert.match((await store.raw(["drain", "nowhere:1"])).stderr, /SEGMENT_NOT_FOUND/);
  assert.match((await store.raw(["drain", "--cancel", "00000000-0000-0000-0000-000000000001"])).stderr, /JOB_NOT_FOUND/);
});

void test("stat, replicas and ls show the keys of the given tenant", async () => {
  await using master = await startMaster({ flags: ["--enable_multi_tenants"] });
  await using service = await startService({ master: master.rpcPort, flags: ["--global_segment_size=32mb"] });
  const store = on(master);
  const quota = { method: "PUT", body: JSON.stringify({ requested_quota_bytes: 1 << 20 }) };
  assert.equal((await fetch(`${master.url}/api/v1/tenant_quotas?tenant_id=red`, quota)).status, 200);
  assert.equal((await store.raw(["put", "k", "--tenant", "red"], "value")).code, 0);
  assert.match(await store.text("stat", "k", "--tenant", "red"), /^KEY +SIZE[\s\S]*\nk +5 B +xxh3:/);
  assert.equal((await store.json<unknown[]>("replicas", "k", "--tenant", "red")).length, 1);
  assert.deepEqual(
    (await store.json<{ key: string; sizeBytes: number }[]>("ls", "--tenant", "red")).map(({ key, sizeBytes }) => [key, sizeBytes]),
    [["k", 5]],
  );
  assert.equal((await store.raw(["replicas", "k"])).code, 1);
  const whole = await store.raw(["summary", "--tenant", "red"]);
  assert.deepEqual([whole.code, /--tenant: svc store summary has no such flag/.test(whole.stderr)], [2, true], whole.stderr);
  await service.kill("SIGTERM");
});

void test("top counts operations, keys and bytes as they come, a line of JSON per sample", async () => {
  await using master = await startMaster();
  await using service = await startService({ master: master.rpcPort, flags: ["--global_segment_size=64mb"] });
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", MAIN, "top", "--output", "json"], {
    env: { ...process.env, SVC_HOME: master.home },
    stdio: ["ignore", "pipe", "inherit"],
  });
  endWithUs(child);
  type Look = {
    keys: number;
    usedBytes: number;
    operations: { operation: string; perSecond: number; meanUs: number; p99Us: number }[];
    holders: { sizeBytes: number }[];
  };
  const looks: Look[] = [];
  createInterface({ input: child.stdout }).on("line", (line) => looks.push(JSON.parse(line) as Look));
  await until("a first look", () => looks[0]);
  for (let at = 0; at < 20; at++) await service.ask("PUT", "/api/put", { key: `k${at}`, value: "12345" });
  const last = await until("all keys", () => looks.find((look) => look.keys === 20));
  assert.deepEqual([last.usedBytes >= 100, last.holders.map(({ sizeBytes }) => sizeBytes)], [true, [64 << 20]]);
  const busy = await until("operations", () =>
    looks.find(({ operations }) => operations.some(({ operation, perSecond }) => operation !== "ping" && operation !== "fetch_tasks" && perSecond > 0)),
  );
  for (const { meanUs, p99Us } of busy.operations) assert.ok(meanUs > 0 && p99Us > 0);
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGKILL");
  await ended;
});
