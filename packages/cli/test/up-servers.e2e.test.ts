// `svc up` with several real servers: whose a flag is, which are left out, and what the end of one means to the others.
import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { isAlive } from "../src/up-state.ts";
import { openHome } from "./up-home.ts";

/** Neither root nor a runtime is needed for the other two. */
const WITHOUT_NODE = ["up", "-d", "--without", "node"];

void test("a setting by its full name reaches the server whose section it is, and the others take it as it comes", async () => {
  await using it = openHome();
  const { code, stdout, stderr } = await it.svc(...WITHOUT_NODE, "--metadata.path", "/records", "--indexer.memory_budget_mb=64");
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^metadata {2}http.*\nindexer {3}http.*\nlogs /);
  const [metadata, indexer] = it.state().servers;
  assert.equal((await fetch(`${metadata?.url}/records?key=a`, { method: "PUT", body: "1" })).status, 200);
  assert.equal((await fetch(`${metadata?.url}/records?key=a`)).status, 200);
  assert.equal((await fetch(`${metadata?.url}/metadata?key=a`)).status, 404);
  assert.equal((await fetch(`${indexer?.url}/health`)).ok, true);
});

void test("a configuration file goes to every server, wherever up was called", async () => {
  await using it = openHome();
  writeFileSync(join(it.place.directory, "svc.toml"), '[metadata]\npath = "/from-file"\n[indexer]\nlog_level = "debug"\n');
  assert.equal((await it.svc(...WITHOUT_NODE, "--config", "svc.toml")).code, 0);
  for (const name of ["metadata", "indexer"]) assert.match(readFileSync(join(it.home, "logs", `${name}.log`), "utf8"), /svc\.toml|from-file/, name);
});

void test("a wrong setting ends up with a sentence of the server that it is for", async () => {
  await using it = openHome();
  const { code, stderr } = await it.svc(...WITHOUT_NODE, "--indexer.memory_budget_mb", "lots");
  assert.equal(code, 1);
  assert.match(stderr, /^svc: indexer cannot start/);
  assert.match(stderr, /--indexer\.memory_budget_mb.*"lots", asked for a number/);
  assert.doesNotMatch(stderr, /metadata cannot start/);
  assert.ok(!existsSync(join(it.home, "up.json")));
});

void test("every port that is in use is named, with how to move the server or leave it out", async () => {
  await using it = openHome();
  const taken = createServer().listen(0, "127.0.0.1").unref();
  await once(taken, "listening");
  const address = `127.0.0.1:${(taken.address() as { port: number }).port}`;
  const { code, stderr } = await it.svc(...WITHOUT_NODE, `--indexer.listen=${address}`, "--metadata.listen", address);
  taken.close();
  assert.equal(code, 1);
  for (const name of ["indexer", "metadata"])
    assert.match(stderr, new RegExp(`${name} cannot start \\(${address} is in use: .*--${name}\\.listen HOST:PORT.*--without ${name}\\)`));
});

void test("what up does not understand is refused before anything runs", async () => {
  await using it = openHome();
  for (const [words, says] of [
    [["--without", "store"], /--without wants one of node, metadata, indexer; found "store"/],
    [["--without", "node,metadata,indexer"], /no server to run/],
    [["--without", "node", "--listen", "127.0.0.1:0"], /--listen is a flag of the node/],
    [["127.0.0.1:0"], /up takes flags of servers; found "127\.0\.0\.1:0"/],
  ] as const) {
    const { code, stderr } = await it.svc("up", "-d", ...words);
    assert.equal(code, 2, stderr);
    assert.match(stderr, says);
  }
  assert.ok(!existsSync(join(it.home, "logs")));
});

void test("a server that is killed is started again by name, and the others run on", async () => {
  await using it = openHome();
  await it.svc(...WITHOUT_NODE);
  const [metadata, indexer] = it.state().servers;
  assert.ok(metadata !== undefined && indexer !== undefined);
  process.kill(indexer.pid, "SIGKILL");
  await until("another indexer", () => (it.state().servers[1]?.pid === indexer.pid ? undefined : true));
  assert.ok(isAlive(metadata));
  assert.equal((await fetch(`${it.state().servers[1]?.url}/health`)).ok, true);
  await until("a word in the log", () => (/indexer is up again/.test(readFileSync(join(it.home, "logs", "up.log"), "utf8")) ? true : undefined));
  assert.match(readFileSync(join(it.home, "logs", "up.log"), "utf8"), /^indexer ended with SIGKILL; starting it again in 500 ms$/m);
  const last = it.state();
  assert.match((await it.svc("down")).stdout, /^down/);
  assert.deepEqual(last.servers.map(isAlive), [false, false]);
});

void test("an up killed before its servers were ready leaves none that the next up does not end", async () => {
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
