// How the client finds its server and its key, and how `svc auth` stores them.
import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { startTicksOf } from "../src/access/up-state.ts";
import { KEY, openControlPlane } from "./control-plane.ts";
import { openPlace } from "./svc.ts";

const OTHER_KEY = "sdk_ffffffffffffffffffffffffffffffff";

void test("auth without a terminal reads URL and key as two lines and saves them readable by their owner only", async () => {
  await using server = await openControlPlane();
  await using place = openPlace();
  const result = await place.svc(["auth"], { input: `${server.url}/\n${KEY}\n` });
  assert.equal(result.code, 0, result.stderr);
  assert.equal(readFileSync(place.credentials, "utf8").trim(), `url = "${server.url}"\napi_key = "${KEY}"`);
  assert.equal(statSync(place.credentials).mode & 0o777, 0o600);
  assert.equal(statSync(dirname(place.credentials)).mode & 0o777, 0o700);
  assert.deepEqual(readdirSync(dirname(place.credentials)), ["credentials"], "no temporary file is left");
  assert.equal((await place.svc(["list", "-q"])).code, 0);
});

void test("auth replaces a file that others can read by one that they cannot", async () => {
  await using server = await openControlPlane();
  await using place = openPlace();
  mkdirSync(dirname(place.credentials), { recursive: true });
  writeFileSync(place.credentials, "old");
  chmodSync(place.credentials, 0o644);
  assert.equal((await place.svc(["auth"], { input: `${server.url}\n${KEY}\n` })).code, 0);
  assert.equal(statSync(place.credentials).mode & 0o777, 0o600);
});

void test("auth reports that a server rejects the key, and saves nothing", async () => {
  await using server = await openControlPlane();
  await using place = openPlace();
  const result = await place.svc(["auth"], { input: `${server.url}\n${OTHER_KEY}\n` });
  assert.equal(result.code, 1);
  assert.match(result.stderr, /refuses this key/);
  assert.ok(!existsSync(place.credentials));
});

void test("auth with --no-check saves credentials of a server that is not there", async () => {
  await using place = openPlace();
  const url = "http://127.0.0.1:9";
  assert.equal((await place.svc(["auth"], { input: `${url}\n${KEY}\n` })).code, 1);
  assert.equal((await place.svc(["auth", "--no-check"], { input: `${url}\n${KEY}\n` })).code, 0);
  assert.match(readFileSync(place.credentials, "utf8"), /127\.0\.0\.1:9/);
});

void test("auth --show e2b prints the key as every release of the E2B SDKs takes it, and nothing else", async () => {
  await using server = await openControlPlane();
  await using place = openPlace();
  const env = { SDK_API_KEY: KEY, SVC_URL: server.url };
  const { stdout, code } = await place.svc(["auth", "--show", "e2b"], { env });
  assert.equal(code, 0);
  assert.match(stdout, /^e2b_[0-9a-f]{40}\n$/);
  const spelt = stdout.trim();
  // A key that has this form already is shown as it is.
  assert.equal((await place.svc(["auth", "--show", "e2b"], { env: { ...env, SDK_API_KEY: spelt } })).stdout, stdout);
  assert.match((await place.svc(["auth", "--show", "other"], { env })).stderr, /--show: expected e2b or nothing, got "other"/);
});

void test("auth treats an empty URL as the local default", async () => {
  await using place = openPlace();
  assert.equal((await place.svc(["auth", "--no-check"], { input: `\n${KEY}\n` })).code, 0);
  assert.match(readFileSync(place.credentials, "utf8"), /url = "http:\/\/localhost:8000"/);
});

void test("auth refuses what is not a URL or not a key", async () => {
  await using place = openPlace();
  for (const input of [
    `ftp://x\n${KEY}`,
    `nonsense\n${KEY}`,
    `http://u:p@host\n${KEY}`,
    "\nshort",
    `\n${"x".repeat(257)}`,
    "\nsdk_0123456789abcdef0123456789abcde!",
    "\n",
    "",
  ]) {
    const result = await place.svc(["auth", "--no-check"], { input });
    assert.equal(result.code, 2, JSON.stringify(input));
    assert.match(result.stderr, /^svc: /);
  }
  assert.ok(!existsSync(place.credentials));
});

void test("saved credentials come before SDK_API_KEY, and are not sent to another server of --url", async () => {
  await using server = await openControlPlane();
  await using other = await openControlPlane();
  await using place = openPlace();
  await place.svc(["auth"], { input: `${server.url}\n${KEY}\n` });
  assert.equal((await place.svc(["list"], { env: { SDK_API_KEY: OTHER_KEY, SVC_URL: "http://127.0.0.1:9" } })).code, 0);
  const refused = await place.svc(["list", "--url", other.url], { env: { SDK_API_KEY: OTHER_KEY } });
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /refuses the API key from SDK_API_KEY/);
  assert.equal((await place.svc(["list", "--url", other.url], { env: { SDK_API_KEY: KEY } })).code, 0);
});

void test("SDK_API_KEY, or the servers' own SVC_API_KEY, needs no auth together with SVC_URL", async () => {
  await using server = await openControlPlane();
  await using place = openPlace();
  for (const name of ["SDK_API_KEY", "SVC_API_KEY"]) assert.equal((await place.svc(["list"], { env: { [name]: KEY, SVC_URL: server.url } })).code, 0, name);
  assert.equal((await place.svc(["list"], { env: { SDK_API_KEY: KEY, SVC_API_KEY: OTHER_KEY, SVC_URL: server.url } })).code, 0);
});

void test("E2B_API_KEY goes to the server in E2B_API_URL and to no other, since it may be a hosted service's", async () => {
  await using server = await openControlPlane();
  await using other = await openControlPlane();
  await using place = openPlace();
  const hosted = { E2B_API_KEY: KEY, E2B_API_URL: `${server.url}/` };
  assert.equal((await place.svc(["list"], { env: hosted })).code, 0);
  assert.equal((await place.svc(["list", "--url", server.url], { env: { ...hosted, SVC_URL: other.url } })).code, 0);
  assert.match((await place.svc(["auth", "--show"], { env: hosted })).stdout, /, from E2B_API_KEY\n$/);
  const exported = await place.svc(["auth", "--export"], { env: { SDK_API_KEY: KEY, SVC_URL: server.url } });
  assert.equal(
    exported.stdout,
    `export E2B_API_URL='${server.url}'\nexport E2B_SANDBOX_URL='${server.url}'\nexport E2B_VOLUME_API_URL='${server.url}'\nexport E2B_API_KEY='${KEY}'\n`,
  );
  for (const [args, env] of [
    [["list", "--url", other.url], hosted],
    [["list"], { ...hosted, SVC_URL: other.url }],
    [["list"], { E2B_API_KEY: KEY, SVC_URL: other.url }],
    [["list", "--url", other.url], { E2B_API_KEY: KEY }],
  ] as const) {
    const refused = await place.svc(args, { env });
    assert.equal(refused.code, 1);
    assert.match(
      refused.stderr,
      /^svc: no API key may be sent to http:\S+: E2B_API_KEY is sent to the server in E2B_API_URL alone: (set E2B_API_URL as well|which is http:\S+); /,
    );
  }
  // svc's own variables name another server, and its key.
  assert.equal((await place.svc(["list"], { env: { ...hosted, E2B_API_KEY: OTHER_KEY, SDK_API_KEY: KEY, SVC_URL: server.url } })).code, 0);
  assert.deepEqual([...other.keys], []);
});

void test("svc run lends a program this server's key together with its URL, and never together with an E2B SDK key that was already set", async () => {
  await using server = await openControlPlane();
  await using place = openPlace();
  const file = join(place.directory, "program.ts");
  writeFileSync(file, 'console.log(process.env["E2B_API_URL"], process.env["E2B_API_KEY"]);');
  const own = { SDK_API_KEY: KEY, SVC_URL: server.url };
  assert.equal((await place.svc(["run", file], { env: own })).stdout, `${server.url} ${KEY}\n`);
  assert.equal((await place.svc(["run", file], { env: { ...own, E2B_API_KEY: OTHER_KEY } })).stdout, `${server.url} ${KEY}\n`);
  const hosted = { E2B_API_KEY: OTHER_KEY, E2B_API_URL: "https://api.example.org" };
  assert.equal((await place.svc(["run", file], { env: { ...own, ...hosted } })).stdout, `https://api.example.org ${OTHER_KEY}\n`);
  assert.equal((await place.svc(["run", file], { env: { ...own, E2B_API_URL: "https://api.example.org" } })).stdout, "https://api.example.org undefined\n");
});

/** Creates the home of a node as its client finds it; `self` is the process that listens on the port. */
function layHome(home: string, self: object): void {
  mkdirSync(join(home, "secrets"), { recursive: true });
  writeFileSync(join(home, "secrets", "api-key"), `${KEY}\n`);
  writeFileSync(join(home, "node.json"), JSON.stringify(self));
}

void test("a machine's own key is sent only to its own node: not to another port, another process, another machine", async () => {
  await using own = await openControlPlane();
  await using stranger = await openControlPlane();
  await using place = openPlace();
  const self = { pid: process.pid, startTicks: startTicksOf(process.pid), url: own.url.replace("127.0.0.1", "localhost"), address: own.url };
  layHome(place.home, self);
  assert.equal((await place.svc(["list"])).code, 0, "found by the file that it keeps");
  assert.equal((await place.svc(["list"], { env: { SVC_URL: self.url } })).code, 0);

  const elsewhere = await place.svc(["list"], { env: { SVC_URL: stranger.url } });
  assert.equal(elsewhere.code, 1);
  assert.match(
    elsewhere.stderr,
    /^svc: no API key may be sent to http:\/\/127\S+: the API key from \S+api-key is sent to the node of \S+ alone, which is at http:\/\/localhost:\d+; start .*svc auth/,
  );
  assert.match((await place.svc(["auth", "--show"], { env: { SVC_URL: "http://sandboxes.example.org" } })).stdout, /key {2}none/);

  // The node is gone, but its file still exists, and another process has its pid.
  layHome(place.home, { ...self, startTicks: 1 });
  const down = await place.svc(["list", "--url", own.url]);
  assert.match(down.stderr, /which is not running; start the node with \.\/svc up/);
  for (const { keys } of [own, stranger]) assert.deepEqual([...keys].sort(), keys === own.keys ? [KEY] : []);
});

void test("a missing key is reported, but a missing server is reported first", async () => {
  await using server = await openControlPlane();
  await using place = openPlace();
  assert.match((await place.svc(["list"], { env: { SVC_URL: server.url } })).stderr, /^svc: no API key for http:\/\/127.*svc auth.*SDK_API_KEY/);
  const gone = await place.svc(["list"], { env: { SVC_URL: "http://127.0.0.1:9" } });
  assert.equal(gone.code, 1);
  assert.match(gone.stderr, /^svc: no server answers at http:\/\/127\.0\.0\.1:9 .*\.\/svc up/);
});

void test("saved credentials that are damaged are reported, not skipped", async () => {
  await using place = openPlace();
  mkdirSync(dirname(place.credentials), { recursive: true });
  for (const text of ["url = ", "url = 5", 'url = "http://x"']) {
    writeFileSync(place.credentials, text);
    const result = await place.svc(["list"], { env: { SDK_API_KEY: KEY } });
    assert.equal(result.code, 1);
    assert.match(result.stderr, /credentials .*svc auth/);
  }
});
