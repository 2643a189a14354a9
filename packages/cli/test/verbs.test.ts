// The client's verbs against a control plane: what they print, on which stream, and with which exit code.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { KEY, openControlPlane } from "./control-plane.ts";
import { mainFile, openPlace } from "./svc.ts";

async function open() {
  const server = await openControlPlane();
  const place = openPlace();
  const env = { SDK_API_KEY: KEY, SVC_URL: server.url };
  return {
    server,
    place,
    env,
    svc: (...args: string[]) => place.svc(args, { env }),
    async [Symbol.asyncDispose]() {
      await place[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

void test("start -d prints the id alone, and with --output json the whole answer", async () => {
  await using it = await open();
  assert.equal((await it.svc("start", "base", "-d")).stdout, "i1\n");
  const answer = JSON.parse((await it.svc("start", "-d", "--output", "json")).stdout) as Record<string, unknown>;
  assert.equal(answer["sandboxID"], "i2");
  assert.equal(answer["envdAccessToken"], "token");
});

void test("start sends its options", async () => {
  await using it = await open();
  const result = await it.place.svc(
    ["start", "py", "-d", "--timeout", "60", "-m", "a=1", "-m", "b=x=y", "-e", "A=", "-e", "FROM_HERE", "--no-internet", "--private"],
    { env: { ...it.env, FROM_HERE: "yes" } },
  );
  assert.equal(result.code, 0, result.stderr);
  assert.deepEqual(it.server.sandboxes.get("i1")?.body, {
    templateID: "py",
    timeout: 60,
    allow_internet_access: false,
    metadata: { a: "1", b: "x=y" },
    envVars: { A: "", FROM_HERE: "yes" },
    network: { allowPublicTraffic: false },
  });
});

void test("a refusal is one line on stderr and exit code 1", async () => {
  await using it = await open();
  for (const args of [
    ["start", "absent", "-d"],
    ["timeout", "nobody", "5"],
    ["exec", "nobody", "--", "true"],
    ["connect", "nobody"],
  ]) {
    const { code, stdout, stderr } = await it.svc(...args);
    assert.equal(code, 1, args.join(" "));
    assert.equal(stdout, "");
    assert.match(stderr, /^svc: (template 'absent' not found|sandbox 'nobody' was not found)\n$/);
  }
});

void test("svc list | cat is a table as on a terminal, JSON comes by --output json alone, and -q prints ids", async () => {
  await using it = await open();
  for (let count = 0; count < 120; count++)
    await fetch(`${it.server.url}/v2/sandboxes`, { method: "POST", headers: { "x-api-key": KEY }, body: '{"templateID":"base","timeout":250}' });
  const json = JSON.parse((await it.svc("list", "--output", "json")).stdout) as { sandboxID: string }[];
  assert.equal(json.length, 120, "all pages");
  assert.deepEqual(
    (await it.svc("list", "-q")).stdout.trim().split("\n"),
    json.map(({ sandboxID }) => sandboxID),
  );
  const table = (await it.svc("ls")).stdout.split("\n");
  assert.match(table[0] ?? "", /^SANDBOX ID {2}TEMPLATE {2}STATE {4}CPU {2}MEM {7}DISK {6}STARTED {14}TIME LEFT$/);
  assert.match(table[1] ?? "", /^i1 +base +running +2 +1024 MiB +2048 MiB +2026-01-3\d \d\d:\d\d:\d\d +(4 min( \d+ s)?)$/);
});

void test("names that strangers chose cannot control the terminal", async () => {
  await using it = await open();
  await it.svc("start", "-d", "x\u001b[2Jy");
  assert.match((await it.svc("list")).stdout, /x\?\[2Jy/);
  assert.match((await it.svc("run", "no\u001b[2Jbody.py")).stderr, /^svc: .*no\?\[2Jbody\.py/);
});

void test("delete ends each named sandbox, prints what is gone, and fails when one was not there", async () => {
  await using it = await open();
  for (let count = 0; count < 3; count++) await it.svc("start", "-d");
  const { code, stdout, stderr } = await it.svc("delete", "i1", "nobody", "i3");
  assert.equal(code, 1);
  assert.deepEqual(stdout.trim().split("\n").sort(), ["i1", "i3"]);
  assert.match(stderr, /sandbox 'nobody' was not found/);
  assert.deepEqual([...it.server.sandboxes.keys()], ["i2"]);
});

void test("delete --all asks first, so without a terminal it needs --yes", async () => {
  await using it = await open();
  await it.svc("start", "-d");
  const refused = await it.svc("delete", "--all");
  assert.equal(refused.code, 2);
  assert.match(refused.stderr, /would delete 1 sandbox at .*--yes/);
  assert.equal(it.server.sandboxes.size, 1);
  assert.equal((await it.svc("delete", "--all", "--yes")).code, 0);
  assert.equal(it.server.sandboxes.size, 0);
});

void test("timeout sets the seconds that a sandbox has left", async () => {
  await using it = await open();
  await it.svc("start", "-d");
  assert.equal((await it.svc("timeout", "i1", "3600")).code, 0);
  assert.equal(it.server.sandboxes.get("i1")?.timeout, 3600);
});

void test("a wrong command line ends with exit code 2 and changes nothing", async () => {
  await using it = await open();
  const wrong = [
    [],
    ["lst"],
    ["start", "-x"],
    ["start", "--timeout", "5m"],
    ["start", "-m", "novalue"],
    ["exec", "i1"],
    ["timeout", "i1", "-5"],
    ["delete"],
    ["delete", "--all", "i1"],
    ["list", "-o", "yaml"],
    ["template"],
    ["list", "extra"],
    ["list", "--url", "nonsense"],
  ];
  for (const args of wrong) {
    const { code, stdout, stderr } = await it.svc(...args);
    assert.equal(code, 2, `${args.join(" ")}: ${stdout}${stderr}`);
    assert.equal(stdout, "");
    assert.notEqual(stderr, "");
  }
  assert.deepEqual(it.server.requests, []);
});

void test("a variable that is given by name only and is not set here is refused, and nothing starts without it", async () => {
  await using it = await open();
  for (const args of [
    ["start", "-d", "-e", "SVC_TEST_ABSENT"],
    ["exec", "i1", "-e", "SVC_TEST_ABSENT", "--", "true"],
  ]) {
    const { code, stderr } = await it.svc(...args);
    assert.equal(code, 2);
    assert.match(stderr, /SVC_TEST_ABSENT is not set here: expected NAME=VALUE/);
  }
  assert.deepEqual(it.server.requests, []);
});

void test("an unknown verb gets a suggestion", async () => {
  await using place = openPlace();
  assert.match((await place.svc(["lisst"])).stderr, /unknown command 'lisst'\n\(Did you mean list\?\)/);
  const foreign = await place.svc(["create", "base"]);
  assert.deepEqual(
    [foreign.code, foreign.stderr],
    [2, "svc: unknown command 'create'\n(that is svc start)\n\nUsage: svc VERB [options]\nExample: svc list\nSee svc --help.\n"],
  );
  assert.equal((await place.svc(["version"])).stdout, (await place.svc(["--version"])).stdout);
});

const LATER = ["pause", "resume", "fork", "snapshot", "network", "logs", "metrics", "events"];

void test("every verb explains itself", async () => {
  await using place = openPlace();
  const top = await place.svc(["--help"]);
  assert.equal(top.code, 0);
  for (const verb of ["start", "connect", "exec", "list", "timeout", "delete", "upload", "download", "auth", "up", "down", "openapi", "template", ...LATER]) {
    assert.match(top.stdout, new RegExp(`^ {2}${verb} `, "m"));
    const help = await place.svc([verb, "--help"]);
    assert.equal(help.code, 0, verb);
    assert.match(help.stdout, new RegExp(`^Usage: svc ${verb}`));
  }
});

void test("a reader that closes its end ends a command without an error message", async () => {
  await using it = await open();
  for (let count = 0; count < 300; count++)
    await fetch(`${it.server.url}/v2/sandboxes`, { method: "POST", headers: { "x-api-key": KEY }, body: '{"templateID":"base","timeout":250}' });
  const shell = spawn("bash", ["-c", `"$NODE" "$MAIN" list | head -1; echo "\${PIPESTATUS[0]}"`], {
    env: it.place.env({ ...it.env, NODE: process.execPath, MAIN: mainFile }),
    stdio: ["ignore", "pipe", "pipe"],
  });
  let [stdout, stderr] = ["", ""];
  shell.stdout.on("data", (text) => (stdout += text));
  shell.stderr.on("data", (text) => (stderr += text));
  await new Promise((resolve) => shell.once("close", resolve));
  assert.match(stdout, /^SANDBOX ID [^\n]*\n0\n$/);
  assert.equal(stderr, "");
});

void test("openapi prints the document of the operations", async () => {
  await using place = openPlace();
  const document = JSON.parse((await place.svc(["openapi"])).stdout) as { openapi: string; paths: object };
  assert.equal(document.openapi, "3.1.0");
  assert.ok("/v2/sandboxes" in document.paths);
});
