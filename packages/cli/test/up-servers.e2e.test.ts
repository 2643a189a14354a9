// `svc up` with several real servers: which server a flag goes to, which are left out, and how the end of one affects the others.
import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { isAlive } from "../src/access/up-state.ts";
import { openHome } from "./up-home.ts";

/** The other servers need neither root nor a runtime. */
const WITHOUT_NODE = ["up", "-d", "--without", "node"];

void test("a setting by its full name reaches the server whose section it is, and the others accept it", async () => {
  await using it = openHome();
  const { code, stdout, stderr } = await it.svc(...WITHOUT_NODE, "--metadata.path", "/records", "--indexer.memory_budget_mb=64");
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^metadata {7}http.*\nstore master {3}http.*\nstore service {2}http.*\nstore admin {4}http.*\nindexer {8}http.*\nlogs /);
  const [metadata, indexer] = [it.server("metadata"), it.server("indexer")];
  assert.equal((await fetch(`${metadata?.url}/records?key=a`, { method: "PUT", body: "1" })).status, 200);
  assert.equal((await fetch(`${metadata?.url}/records?key=a`)).status, 200);
  assert.equal((await fetch(`${metadata?.url}/metadata?key=a`)).status, 404);
  assert.equal((await fetch(`${indexer?.url}/health`)).ok, true);
});

void test("a configuration file goes to every server, wherever up was called", async () => {
  await using it = openHome();
  writeFileSync(
    join(it.place.directory, "svc.toml"),
    '[metadata]\npath = "/from-file"\n[indexer]\nlog_level = "debug"\n[store]\nlog_level = "debug"\n[store_service]\nlog_level = "debug"\n[store_admin]\nlog_level = "debug"\n',
  );
  assert.equal((await it.svc(...WITHOUT_NODE, "--config", "svc.toml")).code, 0);
  for (const name of ["metadata", "indexer", "store-master", "store-service", "store-admin"])
    assert.match(readFileSync(join(it.home, "logs", `${name}.log`), "utf8"), /svc\.toml|from-file/, name);
});

void test("a flag that a server would refuse is refused once, before anything starts", async () => {
  await using it = openHome();
  writeFileSync(join(it.place.directory, "svc.toml"), "[metadata]\nno_such = 1\n");
  for (const [words, code, says] of [
    [["--indexer.memory_budget_mb", "lots"], 2, /^svc: flag --indexer\.memory_budget_mb: expected a number, got "lots"\n\nUsage: svc up .*\nExample: svc up\n/],
    [
      ["--store_admin.port", "18081"],
      2,
      /^svc: --store_admin\.port: there is no such setting; \[store_admin\] has listen, .*; svc store admin --help lists the flags\n\nUsage: svc up /,
    ],
    [["--config", "svc.toml"], 1, /^svc: \S+svc\.toml: there is no setting metadata\.no_such; config\/default\.toml lists them all\n$/],
  ] as const)
    for (const detach of [["-d"], []]) {
      const refused = await it.svc("up", ...detach, "--without", "node", ...words);
      assert.equal(refused.code, code, refused.stderr);
      assert.match(refused.stderr, says);
      assert.deepEqual(
        readdirSync(join(it.home, "logs")).filter((name) => name !== "up.log"),
        [],
      );
    }
  assert.ok(!existsSync(join(it.home, "up.json")));
});

void test("every port that is in use is named, with how to move the server or leave it out", async () => {
  await using it = openHome();
  const taken = createServer().listen(0, "127.0.0.1").unref();
  await once(taken, "listening");
  const address = `127.0.0.1:${(taken.address() as { port: number }).port}`;
  const store = [`--store.listen=${address}`, `--store_service.port=${address.split(":")[1]}`];
  const { code, stderr } = await it.svc(...WITHOUT_NODE, `--indexer.listen=${address}`, "--metadata.listen", address, ...store);
  taken.close();
  assert.equal(code, 1);
  assert.match(stderr, new RegExp(`store master cannot start \\(${address} is in use: .*--store\\.listen HOST:PORT.*--without store-master\\)`));
  assert.match(stderr, new RegExp(`store service cannot start \\(${address} is in use: .*--store_service\\.port N.*--without store-service\\)`));
  for (const name of ["indexer", "metadata"])
    assert.match(stderr, new RegExp(`${name} cannot start \\(${address} is in use: .*--${name}\\.listen HOST:PORT.*--without ${name}\\)`));
});

void test("arguments that up does not know are refused before anything runs", async () => {
  await using it = openHome();
  for (const [words, says] of [
    [["--without", "store"], /--without: expected one of node, metadata, store-master, store-service, store-admin, indexer; got "store"/],
    [["--only", "gateway"], /--only: expected one of node, metadata, store-master, store-service, store-admin, indexer; got "gateway"/],
    [["--only", "node", "--without", "indexer"], /up takes --only or --without, not both/],
    [["--only", "indexer", "--listen", "127.0.0.1:0"], /--listen is a flag of the node, which --only leaves out/],
    [["--without", "node,metadata,indexer,store-master,store-service,admin"], /no server left to run/],
    [["--without", "node", "--listen", "127.0.0.1:0"], /--listen is a flag of the node/],
    [
      ["--without", "node,metadata", "--metadata.path=/x"],
      /--metadata\.path: expected a setting of a server that runs; --without leaves out node, metadata, and no other/,
    ],
    [["--without", "node", "--stor_admin.listen=127.0.0.1:0"], /--stor_admin\.listen: expected a setting of a server that runs/],
    [["127.0.0.1:0"], /up takes flags of servers; got "127\.0\.0\.1:0"/],
  ] as const) {
    const { code, stderr } = await it.svc("up", "-d", ...words);
    assert.equal(code, 2, stderr);
    assert.match(stderr, says);
  }
  assert.ok(!existsSync(join(it.home, "logs")));
});

void test("a killed server is restarted by name, and the others keep running", async () => {
  await using it = openHome();
  await it.svc(...WITHOUT_NODE);
  const [metadata, indexer] = [it.server("metadata"), it.server("indexer")];
  process.kill(indexer.pid, "SIGKILL");
  await until("another indexer", () => (it.server("indexer").pid === indexer.pid ? undefined : true));
  assert.ok(isAlive(metadata));
  assert.equal((await fetch(`${it.server("indexer").url}/health`)).ok, true);
  await until("a word in the log", () => (/indexer is up again/.test(readFileSync(join(it.home, "logs", "up.log"), "utf8")) ? true : undefined));
  assert.match(readFileSync(join(it.home, "logs", "up.log"), "utf8"), /^indexer ended with SIGKILL; starting it again in 500 ms$/m);
  const last = it.state();
  assert.match((await it.svc("down")).stdout, /^down/);
  assert.deepEqual(last.servers.map(isAlive), [false, false, false, false, false]);
});

void test("the next svc up ends all servers of one that was killed before they were ready", async () => {
  await using it = openHome();
  const up = it.spawn("up", "--without", "node");
  const state = await until("the first process", () => (existsSync(join(it.home, "up.json")) ? it.state() : undefined));
  up.kill("SIGKILL");
  await once(up, "exit");
  const before = [...(state.starting ?? []), ...state.servers, ...(it.state().starting ?? []), ...it.state().servers];
  assert.ok(before.length > 0);
  assert.equal((await it.svc(...WITHOUT_NODE)).code, 0);
  assert.deepEqual(before.filter(isAlive), []);
});

void test("the store that up runs serves keys through its own service, wherever its ports are", async () => {
  await using it = openHome();
  assert.equal((await it.svc(...WITHOUT_NODE, "--without=metadata,indexer", "--store_service.global_segment_size=64mb")).code, 0);
  const [master, service] = [it.server("store master"), it.server("store service")];
  const detail = (await (await fetch(`${master.url}/get_segments_detail`)).json()) as { segments: { size_bytes: number }[] };
  assert.deepEqual(
    detail.segments.map(({ size_bytes }) => size_bytes),
    [64 << 20],
  );
  assert.equal((await fetch(`${service.url}/health`)).status, 200);
  process.kill(master.pid, "SIGKILL");
  await until("another master", () => (it.server("store master").pid === master.pid ? undefined : true));
  assert.match(readFileSync(join(it.home, "logs", "store-service.log"), "utf8"), /"ready"/);
});
