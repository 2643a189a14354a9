// Access control on the clients' side: our client library and `svc store`, with an unrestricted key, with a tenant's, and without one.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { endWithUs } from "@svc/harness/children.ts";
import { type GuardedMaster, startGuarded, tokens } from "./access.ts";
import { openClient, startClient } from "./client.ts";

const MAIN = fileURLToPath(new URL("../src/cli/main.ts", import.meta.url));

type Outcome = { code: number | null; stdout: string; stderr: string };

function svc(master: GuardedMaster, args: readonly string[], token?: string): Promise<Outcome> {
  const env = { ...process.env, SVC_HOME: master.home, ...(token === undefined ? {} : { SVC_STORE_TOKEN: token }) };
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", MAIN, ...args], { env, stdio: ["pipe", "pipe", "pipe"] });
  endWithUs(child);
  let [stdout, stderr] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text: string) => void (stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => void (stderr += text));
  child.stdin.on("error", () => {});
  child.stdin.end("value");
  return new Promise((resolve) => child.once("close", (code) => resolve({ code, stdout, stderr })));
}

void test("clients with a tenant's key store and read that tenant's objects, with promises and synchronously, also after a restart", async () => {
  await using master = await startGuarded();
  await using holder = await startClient(master, { token: tokens.all, segmentBytes: 16 << 20 });
  await using blue = await openClient(master, { token: tokens.blue, knownPlaces: 0 });
  await using red = await openClient(master, { token: tokens.red, knownPlaces: 0 });
  assert.equal(await blue.put("k", Buffer.from("blue's")), true);
  assert.equal(red.putSync("k", Buffer.from("red's")), true);
  assert.equal(String(blue.getSync("k")), "blue's");
  assert.equal(String(await red.get("k")), "red's");
  assert.equal(await holder.ask("exists", "k"), false);
  await assert.rejects(blue.mount(1 << 24), { name: "ACCESS_DENIED" });
  await master.kill();
  await master.start();
  const until = performance.now() + 60_000;
  const answers = (read: () => Promise<boolean> | boolean) =>
    Promise.resolve()
      .then(read)
      .catch(() => false);
  while (!(await answers(async () => String(await blue.get("k")) === "blue's"))) assert.ok(performance.now() < until);
  while (!(await answers(() => String(red.getSync("k")) === "red's"))) assert.ok(performance.now() < until);
});

void test("a client without a key, or with a wrong one, is refused at once", async () => {
  await using master = await startGuarded();
  // Longer than any test may take: the client must not retry until the join timeout.
  const joinMs = 3_600_000;
  await assert.rejects(openClient(master, { joinMs }), { name: "UNAUTHENTICATED", message: /this master asks for a key/ });
  await assert.rejects(openClient(master, { joinMs, token: tokens.wrong }), { name: "UNAUTHENTICATED", message: /the token is not one of this master's/ });
});

void test("svc store presents the key of --token-file or SVC_STORE_TOKEN, and says what is missing without one", async () => {
  await using master = await startGuarded();
  await using _holder = await startClient(master, { token: tokens.all, segmentBytes: 16 << 20 });
  const file = ["--token-file", master.file];
  assert.equal((await svc(master, ["put", "k", ...file])).code, 0);
  assert.equal((await svc(master, ["get", "k"], tokens.all)).stdout, "value");
  assert.equal((await svc(master, ["put", "b"], tokens.blue)).code, 0);
  const keys = async (...of: Parameters<typeof svc>) => (JSON.parse((await svc(...of)).stdout) as { key: string }[]).map(({ key }) => key);
  assert.deepEqual(await keys(master, ["ls", "--output", "json"], tokens.blue), ["b"]);
  assert.equal((await svc(master, ["summary", ...file])).code, 0);
  for (const [args, token, says] of [
    [["get", "k"], undefined, /this master asks for a key: .*svc store --token-file, SVC_STORE_TOKEN/],
    [["ls"], undefined, /answered 401: expected the header Authorization: Bearer TOKEN/],
    [["ls"], tokens.wrong, /answered 401/],
    [["segments"], tokens.blue, /answered 403: this key is for one tenant's keys/],
    [["ls", "--token-file", "/there/is/none"], undefined, /--token-file: \/there\/is\/none: there is no such file/],
    [["ls"], "short", /environment variable SVC_STORE_TOKEN: a token has 16 to 512/],
  ] as const) {
    const { code, stderr } = await svc(master, args, token);
    assert.equal(code, 1, stderr);
    assert.match(stderr, says);
  }
});
