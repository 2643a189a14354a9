// `svc up` and `svc down` with a real node: one supervisor per home, restarts, and sandboxes that outlive both.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { isAlive } from "../src/access/up-state.ts";
import { mainFile } from "./svc.ts";
import { FLAGS, openHome } from "./up-home.ts";

void describe("svc up and svc down", needs("root", "runsc", "envd", "base"), () => {
  // All tests share one home: each continues where the one before ended.
  let it: ReturnType<typeof openHome>;
  let id: string;
  before(() => {
    it = openHome();
  });
  after(() => it[Symbol.asyncDispose]());

  void test("up -d returns when all servers take requests, and the client then needs no setting", async () => {
    const { code, stdout, stderr } = await it.svc("up", "-d", ...FLAGS);
    assert.equal(code, 0, stderr);
    const url = "http:\\/\\/127\\.0\\.0\\.1:\\d+";
    assert.match(
      stdout,
      new RegExp(
        `^node {11}${url}\nmetadata {7}${url}\nstore master {3}${url}\nstore service {2}${url}\nstore admin {4}${url}\nindexer {8}${url}\nconsole {8}${url}/console  \\(\\./svc console opens it signed in\\)\nAPI key {8}in .*/secrets/api-key\nlogs {11}.*/logs\n$`,
      ),
    );
    assert.equal(stderr, "");
    assert.deepEqual(await it.svc("list", "--output", "json"), { code: 0, signal: null, stdout: "[]\n", stderr: "" });
  });

  void test("sandboxes outlive down, and a second down finds nothing to stop", async () => {
    id = (await it.svc("start", "-d", "--timeout", "3600")).stdout.trim();
    assert.equal((await it.svc("down")).stdout, "down; 1 sandbox lives on until its timeout; the next svc up takes them over\n");
    assert.match((await it.svc("down")).stdout, /^nothing is up on /);
    assert.ok(!existsSync(join(it.home, "up.json")));
  });

  void test("a second up on the same home reports where the first one is, and earlier sandboxes are still there", async () => {
    const both = await Promise.all([it.svc("up", "-d", ...FLAGS), it.svc("up", "-d", ...FLAGS)]);
    assert.deepEqual(
      both.map(({ code }) => code),
      [0, 0],
    );
    assert.equal(both.filter(({ stdout }) => stdout.startsWith("already up at http://127.0.0.1:")).length, 1);
    const urls = it.state().servers.map(({ url }) => url);
    assert.equal(urls.length, 6);
    assert.match((await it.svc("up")).stdout, new RegExp(`^already up at ${urls.join(", ")} \\(pid ${it.state().pid}\\)\n$`));
    for (const detach of [["-d"], []]) {
      const wrong = await it.svc("up", ...detach, "--node.nope=3");
      assert.deepEqual([wrong.code, wrong.stdout], [2, ""], "a wrong flag is one, also while it is up");
    }
    assert.equal((await it.svc("exec", id, "echo", "alive")).stdout, "alive\n");
  });

  void test("a node that is killed is started again, and its sandboxes are there", async () => {
    const first = it.state().servers[0];
    assert.ok(first);
    process.kill(first.pid, "SIGKILL");
    await until("another node", () => (it.state().servers[0]?.pid === first.pid ? undefined : true));
    assert.equal((await it.svc("exec", id, "echo", "alive")).stdout, "alive\n");
  });

  void test("the next svc up replaces the servers of one that was killed", async () => {
    const state = it.state();
    process.kill(state.pid, "SIGKILL");
    await until("the end of up", () => (isAlive(state) ? undefined : true));
    assert.deepEqual(state.servers.map(isAlive), Array(6).fill(true));
    assert.equal((await it.svc("up", "-d", ...FLAGS)).code, 0);
    assert.deepEqual(state.servers.map(isAlive), Array(6).fill(false));
  });

  void test("svc down --sandboxes also ends the sandboxes", async () => {
    assert.equal((await it.svc("exec", id, "echo", "alive")).stdout, "alive\n");
    assert.equal((await it.svc("down", "--sandboxes")).stdout, "down; no sandbox is left\n");
  });

  void test("if a node cannot start, svc up ends and prints the node's last log lines", async () => {
    await using it = openHome();
    const taken = createServer().listen(0, "127.0.0.1").unref();
    await once(taken, "listening");
    const { port } = taken.address() as { port: number };
    for (const args of [
      ["up", "-d", "--listen", `127.0.0.1:${port}`],
      ["up", "--listen", `127.0.0.1:${port}`],
    ]) {
      const { code, stderr } = await it.svc(...args);
      assert.equal(code, 1);
      assert.match(stderr, new RegExp(`^svc: node cannot start \\(127\\.0\\.0\\.1:${port} is in use: .*--listen HOST:PORT.*--without node\\)\n$`), "once");
    }
    // The start is refused before anything is created for it on the host.
    assert.doesNotMatch(readFileSync(join(it.home, "logs/node.log"), "utf8"), /sandbox networks are open/);
    assert.match((await it.svc("up", "--no-such-flag")).stderr, /no-such-flag/);
    assert.ok(!existsSync(join(it.home, "up.json")));
    taken.close();
  });

  void test("Ctrl-C on svc up in the foreground stops the node, and svc up exits with code 0", async () => {
    const child = spawn(process.execPath, [mainFile, "up", ...FLAGS], { env: it.env, stdio: ["ignore", "pipe", "inherit"] });
    await once(child.stdout, "data");
    const node = it.state().servers[0];
    assert.ok(node);
    child.kill("SIGINT");
    assert.equal((await once(child, "exit"))[0], 0);
    assert.ok(!isAlive(node));
    assert.ok(!existsSync(join(it.home, "up.json")));
  });
});
