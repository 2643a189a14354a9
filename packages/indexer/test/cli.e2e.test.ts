// Tests the command `svc index` and the settings of `svc indexer` as a person uses them.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { endWithUs } from "@svc/harness/children.ts";
import { startIndexer } from "./indexer.ts";

const CLI = fileURLToPath(new URL("../src/cli/main.ts", import.meta.url));
const SERVER = fileURLToPath(new URL("../src/main.ts", import.meta.url));

async function run(file: string, args: readonly string[], env: Record<string, string> = {}): Promise<{ code: number; out: string; err: string }> {
  try {
    const { stdout, stderr } = await promisify(execFile)(process.execPath, ["--disable-warning=ExperimentalWarning", file, ...args], {
      env: { ...process.env, ...env },
    });
    return { code: 0, out: stdout, err: stderr };
  } catch (error) {
    const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
    return { code, out: stdout, err: stderr };
  }
}

void test("a simulated engine registers itself, loses messages, and is indexed completely; queries and unregister work from a terminal", async () => {
  await using indexer = await startIndexer();
  const env = { SVC_INDEXER_URL: indexer.url };
  const flags = ["simulate", "--model", "m", "--instance", "e", "--prompts", "200", "--drop", "40", "--capacity", "2000", "--stay"];
  const engine = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", CLI, ...flags], { stdio: "ignore", env: { ...process.env, ...env } });
  endWithUs(engine);
  const ended = new Promise((resolve) => engine.once("exit", resolve));
  const [service] = await indexer.until(
    "all batches",
    () => indexer.services(),
    ([one]) => one?.freshness.last_sequence === 199 && !one.freshness.gap,
  );
  assert.equal(service?.batches["gaps_lost"], 0);
  assert.ok((service?.batches["replayed"] ?? 0) > 0);
  assert.equal(service?.streams[0]?.blocks, 2000);
  assert.equal(service?.events["wrong_seed"], undefined);
  const queried = await run(CLI, ["query", "--model", "m", "--block-size", "2", "--tokens", "1,2,3,4", "--output", "json"], env);
  assert.deepEqual(JSON.parse(queried.out), { default: {} });
  const removed = await run(CLI, ["unregister", "--instance", "e", "--dp-rank", "0", "--output", "json"], env);
  assert.deepEqual(JSON.parse(removed.out).removed_instances, ["e|default|0"]);
  const again = await run(CLI, ["unregister", "--instance", "e", "--dp-rank", "0"], env);
  assert.equal(again.code, 1);
  assert.match(again.err, /no registration e\|default\|0/);
  engine.kill("SIGINT");
  assert.equal(await ended, 0);
});

void test("registrations are read from the environment in both shapes, and a wrong one is refused at the start with its position", async () => {
  const record = { endpoint: "tcp://127.0.0.1:9", type: "vLLM", modelname: "m", block_size: 16, dp_rank: 0 };
  await using indexer = await startIndexer([`--indexer.registrations=${JSON.stringify({ kvevent_instance: { a: record, b: { ...record, dp_rank: 1 } } })}`]);
  assert.deepEqual(
    (await indexer.services()).map(({ instance_id, dp_rank }) => `${instance_id} ${dp_rank}`),
    ["a 0", "b 1"],
  );
  const wrong = await run(SERVER, ["--listen=127.0.0.1:0", `--home=${join(indexer.home, "wrong")}`], {
    SVC_INDEXER_REGISTRATIONS: JSON.stringify([{ ...record, instance_id: "a", type: "x" }]),
  });
  assert.equal(wrong.code, 1);
  assert.match(wrong.err, /indexer.registrations, registration 0: type: expected vLLM, SGLang, Mooncake or svc, got "x"/);
});

void test("svc index services finds this machine's own indexer wherever it listens, and never uses another home's", async () => {
  await using indexer = await startIndexer();
  const own = await run(CLI, ["services", "--output", "json"], { SVC_HOME: indexer.home, SVC_INDEXER_URL: "" });
  assert.deepEqual([own.code, (JSON.parse(own.out || "{}") as { services?: unknown }).services], [0, []], own.err);
  const other = await run(CLI, ["services"], { SVC_HOME: join(indexer.home, "other"), SVC_INDEXER_URL: "" });
  assert.equal(other.code, 1);
  assert.match(other.err, /^svc index: no cache indexer runs on \S+other \(SVC_HOME\): start it with \.\/svc up, or name another one with --url URL\n$/);
});

void test("an invalid command line is explained in a sentence, and help is printed", async () => {
  assert.match((await run(CLI, ["--help"])).out, /svc index simulate/);
  assert.match((await run(CLI, ["query", "--model", "m"])).err, /--block-size is missing/);
  assert.match((await run(CLI, ["services"], { SVC_INDEXER_URL: "http://127.0.0.1:1" })).err, /no cache indexer answers at http:\/\/127.0.0.1:1/);
  const misspelt = await run(CLI, ["services", "--url", "zz"]);
  assert.deepEqual([misspelt.code, /expected the URL of a cache indexer, http:\/\/HOST:PORT, got "zz"/.test(misspelt.err)], [2, true], misspelt.err);
  assert.match((await run(SERVER, ["--help"])).out, /indexer.memory_budget_mb/);
});

void test("a list with an element that is not a whole number is refused by name, and no server is contacted", async () => {
  const asked = ["query", "--url", "http://127.0.0.1:9", "--model", "m", "--block-size", "1"];
  for (const [flag, list, says] of [
    ["--tokens", "1,a,3", /--tokens: expected whole numbers from 0 to 4294967295, got "a"/],
    ["--tokens", "1,,3", /got ""/],
    ["--tokens", "1,-2", /got "-2"/],
    ["--tokens", "4294967296", /got "4294967296"/],
    ["--hashes", "7,x", /--hashes: expected whole numbers from 0 to 18446744073709551615, got "x"/],
    ["--file", "/no/such/file", /--file: \/no\/such\/file cannot be read as JSON/],
  ] as const) {
    const { code, err } = await run(CLI, [...asked, flag, list]);
    assert.equal(code, 2, list);
    assert.match(err, says);
  }
});

void test("an invalid format, conflicting sources or an unusable trace are refused by name, and register nothing", async () => {
  await using indexer = await startIndexer();
  const env = { SVC_INDEXER_URL: indexer.url };
  const query = ["query", "--model", "m", "--block-size", "2"];
  for (const [args, said] of [
    [[...query, "--tokens", "1,2", "--output", "xml"], /--output: expected table or json, got "xml"/],
    [[...query, "--tokens", "1,2", "--hashes", "2"], /expected one of --tokens, --file and --hashes, got --tokens and --hashes/],
    [[...query, "--hashes", "2", "--explain"], /--explain: expected --tokens or --file/],
    [["simulate", "--model", "m", "--instance", "i", "--trace", "/nowhere.jsonl"], /--trace: expected a file of prompts, got "\/nowhere.jsonl"/],
  ] as const) {
    const { code, err } = await run(CLI, args, env);
    assert.equal(code, 2, args.join(" "));
    assert.match(err, said);
  }
  assert.deepEqual(await indexer.services(), []);
  const registered = ["--endpoint", "tcp://127.0.0.1:9", "--type", "vLLM", "--model", "m", "--instance", "engine-a", "--block-size", "16", "--dp-rank", "0"];
  assert.equal((await run(CLI, ["register", ...registered], env)).code, 0);
  const { out } = await run(CLI, ["services"], env);
  assert.match(out, /^INSTANCE +TENANT +RANK +ENDPOINT +BLOCKS +SEQUENCE +GAP +DOCTOR\nengine-a +default +0 +tcp:\/\/127\.0\.0\.1:9 /);
});

void test("a page of the whole view has a bounded size", async () => {
  await using indexer = await startIndexer();
  for (const limit of [0, 10_001]) {
    const answer = await fetch(`${indexer.url}/global_view?limit=${limit}`);
    assert.equal(answer.status, 400);
    assert.match(await answer.text(), /limit: expected a whole number from 1 to 10000/);
  }
});
