// Terminals in a real sandbox: size, keys, detaching and returning.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { type Live, openLive } from "./live.ts";

const PROMPT = "$ ";
const LEAVE = "\u001d";

void describe("a terminal in a sandbox", needs("root", "runsc", "envd", "base", "python3"), () => {
  let live: Live;
  before(async () => {
    live = await openLive();
  });
  after(() => live?.[Symbol.asyncDispose]());

  void test("connect opens a shell with this terminal's size, and follows when it changes", async () => {
    using terminal = live.terminal(["connect", live.sandboxID, "--session", "size"]);
    await terminal.sees(PROMPT);
    terminal.type("stty size\r");
    await terminal.sees("30 100");
    terminal.grow();
    terminal.type("until stty size | grep -q '40 120'; do sleep 0.1; done; echo grown-$((1 + 1))\r");
    await terminal.sees("grown-2");
    terminal.type("exit 5\r");
    assert.equal((await terminal.end()).code, 5);
  });

  void test("a detached shell keeps running, and connect returns to it", async () => {
    {
      using terminal = live.terminal(["connect", live.sandboxID]);
      await terminal.sees(PROMPT);
      terminal.type("KEPT=yes; echo set-$KEPT\r");
      await terminal.sees("set-yes");
      terminal.type(LEAVE);
      const { code, screen } = await terminal.end();
      assert.equal(code, 0);
      assert.match(screen, /left session main open; svc connect/);
    }
    using terminal = live.terminal(["connect", live.sandboxID]);
    await terminal.sees("back in session main");
    await terminal.sees(PROMPT);
    terminal.type("echo still-$KEPT\r");
    await terminal.sees("still-yes");
    terminal.type("exit\r");
    assert.equal((await terminal.end()).code, 0);
  });

  void test("connect without a terminal runs what stdin has, and ends at the end of stdin", async () => {
    for (const input of ["", "echo piped-$((40 + 2)); sleep 1\n"]) {
      const { code, stdout } = await live.svc(["connect", live.sandboxID, "--new"], { input });
      assert.equal(code, 0, stdout);
      assert.equal(stdout.includes("piped-42"), input !== "", stdout);
    }
  });

  void test("Ctrl-C ends what runs in the shell, not the shell", async () => {
    using terminal = live.terminal(["connect", live.sandboxID, "--new"]);
    await terminal.sees(PROMPT);
    terminal.type("sleep 985; echo code-$?\r");
    await until("sleep inside", async () => ((await live.svc(["exec", live.sandboxID, "ps", "ax"])).stdout.includes("sleep 985") ? true : undefined));
    terminal.type("\u0003");
    terminal.type("echo after-$((40 + 2))\r");
    await terminal.sees("after-42");
    terminal.type("exit\r");
    await terminal.end();
  });

  void test("exec -t gives a command a terminal, and its output arrives unchanged", async () => {
    using terminal = live.terminal([
      "exec",
      "-t",
      live.sandboxID,
      "--",
      "sh",
      "-c",
      "test -t 0 && test -t 1 && stty -opost && printf 'a\\nb' && sleep 0.5; exit 4",
    ]);
    const { code, screen } = await terminal.end();
    assert.equal(code, 4);
    // There must be no carriage return, since full-screen programs use LF as "down".
    assert.match(screen, /a\nb/);
  });

  void test("start opens a shell, says what happens to the sandbox next, and --rm deletes it at the shell's end", async () => {
    const ids = async () => (await live.svc(["list", "-q"])).stdout.trim().split("\n").sort();
    const before = await ids();
    using first = live.terminal(["start"]);
    await first.sees(PROMPT);
    first.type("exit 3\r");
    const end = await first.end();
    assert.equal(end.code, 3);
    assert.match(end.screen, /lives on until its timeout; svc delete/);
    using second = live.terminal(["start", "--rm"]);
    await second.sees(PROMPT);
    assert.equal((await ids()).length, before.length + 2);
    second.type("exit\r");
    await second.end();
    assert.equal((await ids()).length, before.length + 1);
  });

  void test("an attached terminal keeps its sandbox alive past its timeout", async () => {
    await live.svc(["timeout", live.sandboxID, "20"]);
    using terminal = live.terminal(["connect", live.sandboxID, "--session", "alive"]);
    await terminal.sees(PROMPT);
    const left = await until("more life", async () => {
      const [sandbox] = JSON.parse((await live.svc(["list", "-o", "json"])).stdout).filter(
        ({ sandboxID }: { sandboxID: string }) => sandboxID === live.sandboxID,
      );
      const seconds = (Date.parse(sandbox.endAt) - Date.now()) / 1000;
      return seconds > 60 ? seconds : undefined;
    });
    assert.ok(left > 60);
    await live.svc(["timeout", live.sandboxID, "3600"]);
    terminal.type("exit\r");
    await terminal.end();
  });
});
