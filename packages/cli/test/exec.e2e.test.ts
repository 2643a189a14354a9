// `svc exec` in a real sandbox: streams, arguments, signals and exit codes are those of a command run here.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { after, before, describe, test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { type Live, openLive } from "./live.ts";

void describe("svc exec", needs("root", "runsc", "envd", "base"), () => {
  let live: Live;
  before(async () => {
    live = await openLive();
  });
  after(() => live?.[Symbol.asyncDispose]());
  const exec = (...command: string[]) => live.svc(["exec", live.sandboxID, "--", ...command]);

  void test("a command computes 42 inside the sandbox, and svc exec prints it", async () => {
    assert.deepEqual(await exec("python3", "-c", "print(6*7)"), { code: 0, signal: null, stdout: "42\n", stderr: "" });
  });

  void test("stdout, stderr and the exit code arrive separately", async () => {
    assert.deepEqual(await exec("sh", "-c", "echo out; echo err >&2; exit 7"), { code: 7, signal: null, stdout: "out\n", stderr: "err\n" });
  });

  void test("arguments arrive exactly as they were given", async () => {
    const words = ["a b", "$HOME", "it's", '"', "", "*", "\\n", "new\nline", "ünï", "--", "-x"];
    const { stdout } = await exec("printf", "%s\\0", ...words);
    assert.deepEqual(stdout.split("\0").slice(0, -1), words);
  });

  void test("the dashes before the command may be left out", async () => {
    assert.equal((await live.svc(["exec", live.sandboxID, "-u", "root", "sh", "-c", "id -un"])).stdout, "root\n");
  });

  void test("stdin is sent to its last byte, and its end is the command's end of input", async () => {
    const input = randomBytes(5_000_000);
    const { code, stdout } = await live.svc(["exec", live.sandboxID, "--", "sha256sum"], { input });
    assert.equal(code, 0);
    assert.equal(stdout.split(" ")[0], createHash("sha256").update(input).digest("hex"));
  });

  void test("a command that does not read its stdin ends as if there were none", async () => {
    assert.equal((await live.svc(["exec", live.sandboxID, "--", "true"], { input: randomBytes(3_000_000) })).code, 0);
  });

  void test("stdout is received to its last byte", async () => {
    const { stdout } = await exec("seq", "1", "300000");
    assert.equal(stdout, Array.from({ length: 300_000 }, (_, index) => `${index + 1}\n`).join(""));
  });

  void test("user, directory and environment are the requested ones", async () => {
    const { stdout } = await live.svc(
      ["exec", live.sandboxID, "-u", "root", "-w", "/usr/bin", "-e", "A=b c", "-e", "HERE", "--", "sh", "-c", 'id -un; pwd; echo "$A $HERE"'],
      { env: { HERE: "yes" } },
    );
    assert.equal(stdout, "root\n/usr/bin\nb c yes\n");
  });

  void test("a command that cannot be run is reported with the exit codes that shells use", async () => {
    const missing = await exec("no-such-program");
    assert.equal(missing.code, 127);
    assert.match(missing.stderr, /^svc: .*no-such-program/);
    assert.match((await exec("ls -la")).stderr, /sh -c/);
    const cases: [string[], RegExp][] = [
      [["-w", "/no/such"], /\/no\/such/],
      [["-u", "nobody-here"], /nobody-here/],
    ];
    for (const [flags, says] of cases) {
      const { code, stderr } = await live.svc(["exec", live.sandboxID, ...flags, "--", "true"]);
      assert.equal(code, 1);
      assert.match(stderr, says);
      assert.doesNotMatch(stderr, /API key/);
    }
  });

  void test("a command that exceeds its --timeout is ended with exit code 124", async () => {
    assert.equal((await live.svc(["exec", live.sandboxID, "--timeout", "1", "--", "sleep", "987"])).code, 124);
    assert.doesNotMatch((await exec("ps", "ax")).stdout, /sleep 987/);
  });

  void test("a command ended by a signal shows 128 plus its number", async () => {
    assert.equal((await exec("sh", "-c", "kill -9 $$")).code, 137);
  });

  void test("Ctrl-C reaches the command, which may handle it as it likes", async () => {
    const child = live.spawn(["exec", live.sandboxID, "--", "sh", "-c", "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done"]);
    const lines: string[] = [];
    child.stdout.on("data", (text: Buffer) => lines.push(text.toString()));
    await once(child.stdout, "data");
    child.kill("SIGINT");
    const [code] = await once(child, "close");
    assert.equal(code, 9);
    assert.equal(lines.join(""), "ready\ncaught\n");
  });

  void test("SIGTERM ends the command inside, and a second Ctrl-C kills one that ignores the first", async () => {
    const sleeping = live.spawn(["exec", live.sandboxID, "--", "sh", "-c", "echo ready; exec sleep 986"]);
    await once(sleeping.stdout, "data");
    sleeping.kill("SIGTERM");
    assert.equal((await once(sleeping, "close"))[0], 143);
    const stubborn = live.spawn(["exec", live.sandboxID, "--", "sh", "-c", "trap '' INT; echo ready; while :; do sleep 0.1; done"]);
    await once(stubborn.stdout, "data");
    stubborn.kill("SIGINT");
    // Two signals in quick succession are delivered as one.
    const again = setInterval(() => stubborn.kill("SIGINT"), 500);
    assert.equal((await once(stubborn, "close"))[0], 137);
    clearInterval(again);
    assert.doesNotMatch((await exec("ps", "ax")).stdout, /sleep 986/);
  });

  void test("a reader that goes away ends the command inside", async () => {
    const child = live.spawn(["exec", live.sandboxID, "--", "sh", "-c", "exec yes marker-of-this-test"]);
    await once(child.stdout, "data");
    child.stdout.destroy();
    assert.equal((await once(child, "exit"))[0], 141);
    assert.doesNotMatch((await exec("ps", "ax")).stdout, /yes marker/);
  });
});
