// Every call of E2B's code interpreter SDK for JavaScript against a real sandbox of code-interpreter-v1.
import assert from "node:assert/strict";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { NotFoundError, Sandbox } from "@e2b/code-interpreter";
import type { TestNode } from "../src/node.ts";
import { connectionTo } from "../src/template.ts";
import { until } from "../src/until.ts";
import { drivesRunCode } from "./interpreter-mcp.ts";

/** A minimal valid PNG. */
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

export function interpreterTests(node: () => TestNode): void {
  async function inSandbox(work: (sandbox: Sandbox) => Promise<void>, options: { envs?: Record<string, string>; secure?: boolean } = {}): Promise<void> {
    const sandbox = await Sandbox.create({ ...connectionTo(node()), timeoutMs: 300_000, ...options });
    try {
      await work(sandbox);
    } finally {
      await sandbox.kill();
    }
  }

  void test("code runs in one Python, whose variables stay from call to call", () =>
    inSandbox(async (sandbox) => {
      const first = await sandbox.runCode("x = 20\nx + 1");
      assert.deepEqual([first.text, first.executionCount, first.error, first.results.length], ["21", 1, undefined, 1]);
      assert.equal(first.results[0]?.isMainResult, true);
      const second = await sandbox.runCode("x += 2; x");
      assert.deepEqual([second.text, second.executionCount], ["22", 2]);
      assert.equal((await sandbox.runCode("'text'")).text, "text");
      assert.equal((await sandbox.runCode("import os; os.getcwd()")).text, "/home/user");
      await sandbox.files.write("/home/user/file.txt", "from outside");
      assert.equal((await sandbox.runCode("open('file.txt').read()")).text, "from outside");
      assert.deepEqual((await sandbox.commands.run("ls -A /home/user | grep -v -e bash -e profile")).stdout, "file.txt\n");
    }));

  void test("output comes as it is printed, results in every form, and errors with their traceback", () =>
    inSandbox(async (sandbox) => {
      const seen: string[] = [];
      const run = await sandbox.runCode(
        `import sys, time
from IPython.display import HTML, Image, JSON, Markdown, SVG, Latex, Javascript, display
print("out")
sys.stdout.flush()
time.sleep(0.5)
print("err", file=sys.stderr)
display(HTML("<b>h</b>"), Markdown("*m*"), Latex("$l$"), Javascript("j()"), JSON({"a": [1]}))
display(SVG('<svg xmlns="http://www.w3.org/2000/svg"/>'))
display(Image(__import__("base64").b64decode("${PNG}")))
display({"application/x-own": "mine", "text/plain": "own"}, raw=True)
1 / 0`,
        {
          onStdout: ({ line, error }) => void seen.push(`stdout ${line.trim()} ${error}`),
          onStderr: ({ line, error }) => void seen.push(`stderr ${line.trim()} ${error}`),
          onResult: (result) => void seen.push(`result ${[...result.formats()].join("+")}`),
          onError: ({ name }) => void seen.push(`error ${name}`),
        },
      );
      assert.deepEqual(run.logs, { stdout: ["out\n"], stderr: ["err\n"] });
      assert.deepEqual(seen, [
        "stdout out false",
        "stderr err true",
        "result html",
        "result markdown",
        "result latex",
        "result javascript",
        "result json",
        "result svg",
        "result png",
        "result application/x-own",
        "error ZeroDivisionError",
      ]);
      const image = run.results.find(({ png }) => png !== undefined);
      assert.equal(image?.png?.trim(), PNG);
      assert.equal(image?.isMainResult, false);
      assert.deepEqual([run.error?.name, run.error?.value], ["ZeroDivisionError", "division by zero"]);
      assert.match(run.error?.traceback ?? "", /1 \/ 0/);
      assert.equal((await sandbox.runCode("still = 'here'; still")).text, "here");
    }));

  void test("contexts have variables, a directory and a language of their own, are listed, restarted and removed", () =>
    inSandbox(async (sandbox) => {
      await sandbox.runCode("mine = 1");
      const context = await sandbox.createCodeContext({ cwd: "/tmp" });
      assert.deepEqual([context.language, context.cwd], ["python", "/tmp"]);
      assert.equal((await sandbox.runCode("import os; os.getcwd()", { context })).text, "/tmp");
      assert.equal((await sandbox.runCode("mine", { context })).error?.name, "NameError");
      await sandbox.runCode("theirs = 2", { context });
      assert.ok((await sandbox.listCodeContexts()).some(({ id, cwd }) => id === context.id && cwd === "/tmp"));
      await sandbox.restartCodeContext(context);
      assert.equal((await sandbox.runCode("theirs", { context })).error?.name, "NameError");
      assert.equal((await sandbox.runCode("mine")).text, "1");
      await sandbox.removeCodeContext(context.id);
      assert.ok(!(await sandbox.listCodeContexts()).some(({ id }) => id === context.id));
      await assert.rejects(sandbox.runCode("1", { context }), NotFoundError);
      await assert.rejects(sandbox.removeCodeContext(context), NotFoundError);
      await assert.rejects(sandbox.restartCodeContext("none"), NotFoundError);
      await assert.rejects(sandbox.createCodeContext({ cwd: "/nowhere" }), /400/);
      await assert.rejects(sandbox.runCode("1", { language: "cobol" }), /400/);
      const bash = await sandbox.runCode("cd /tmp; pwd; echo $((6 * 7))", { language: "bash" });
      assert.equal(bash.logs.stdout.join(""), "/tmp\n42\n");
      assert.equal((await sandbox.runCode("pwd", { language: "bash" })).logs.stdout.join(""), "/tmp\n");
    }));

  void test("code sees the sandbox's variables and its own, which end with it", () =>
    inSandbox(
      async (sandbox) => {
        const value = async (name: string, envs?: Record<string, string>, language = "python") => {
          const code = language === "python" ? `import os; print(os.environ.get("${name}"))` : `echo \${${name}:-None}`;
          const run = await sandbox.runCode(code, { language, ...(envs === undefined ? {} : { envs }) });
          return run.logs.stdout.join("").trim();
        };
        for (const language of ["python", "bash"]) {
          assert.equal(await value("OF_SANDBOX", undefined, language), "it's");
          assert.equal(await value("OF_CODE", { OF_CODE: "mine" }, language), "mine");
          assert.equal(await value("OF_CODE", undefined, language), "None");
          assert.equal(await value("OF_SANDBOX", { OF_SANDBOX: "other" }, language), "other");
          assert.equal(await value("OF_SANDBOX", undefined, language), "it's");
        }
      },
      { envs: { OF_SANDBOX: "it's" }, secure: true },
    ));

  void test("code that exceeds its time limit is interrupted, and its context keeps its variables", () =>
    inSandbox(async (sandbox) => {
      await sandbox.runCode("kept = 'kept'");
      await assert.rejects(sandbox.runCode("import time\nwhile True: time.sleep(0.1)", { timeoutMs: 2_000 }), /timed out|timeout/i);
      assert.equal((await sandbox.runCode("kept")).text, "kept");
    }));

  void test("a kernel that exits or forks is replaced, which the answer says", () =>
    inSandbox(async (sandbox) => {
      const died = await sandbox.runCode("before = 1\nimport os\nos._exit(3)");
      assert.equal(died.error?.name, "KernelDied");
      assert.match(died.error?.value ?? "", /its variables are gone/);
      assert.equal((await sandbox.runCode("before")).error?.name, "NameError");
      const forked = await sandbox.runCode(
        "pid = os.fork() if 'os' in dir() else __import__('os').fork()\nif pid == 0: __import__('os')._exit(0)\n__import__('os').waitpid(pid, 0)[1]",
      );
      assert.equal(forked.text, "0");
      await sandbox.commands.run("pkill -f python_kernel.py", { user: "root" });
      const after = await until("the next code runs", async () => {
        const run = await sandbox.runCode("1 + 1");
        return run.text === "2" ? run : undefined;
      });
      assert.match(after.logs.stderr.join(""), /a new one runs, and the variables of earlier code are gone/);
    }));

  void test("two sandboxes draw different random numbers, and one that was paused or forked keeps its variables", () =>
    inSandbox(async (one) => {
      await inSandbox(async (two) => {
        const draw = async (sandbox: Sandbox) => (await sandbox.runCode("import random; random.random()")).text;
        assert.notEqual(await draw(one), await draw(two));
      });
      await one.runCode("kept = [1, 2]");
      await one.pause();
      const back = await Sandbox.connect(one.sandboxId, connectionTo(node()));
      assert.equal((await back.runCode("kept")).text, "[1, 2]");
    }));

  void test("run_code of MCP keeps variables, shows images, and interrupts what takes too long", () => drivesRunCode(node(), PNG));

  void test("code of megabytes arrives whole, and of thousands of results none is lost", () =>
    inSandbox(async (sandbox) => {
      const word = "0123456789abcdef".repeat(200_000);
      assert.equal((await sandbox.runCode(`word = "${word}"\nlen(word), word[-4:]`)).text, "(3200000, 'cdef')");
      const { results, error } = await sandbox.runCode("for each in range(5_000): display(each)");
      assert.deepEqual([error, results.map(({ text }) => Number(text))], [undefined, Array.from({ length: 5_000 }, (_, each) => each)]);
    }));

  void test("if a client reads slowly, no output is lost without notice, and the sandbox continues", () =>
    inSandbox(async (sandbox) => {
      const { url } = node();
      const headers = { "x-svc-sandbox-id": sandbox.sandboxId, "x-svc-target-port": "49999" };
      const body = JSON.stringify({ code: "for _ in range(150): print('x' * 999_999)\n'done'" });
      const response = await fetch(`${url}/proxy/execute`, { method: "POST", headers, body });
      // The code has printed all of it before the first byte is read.
      await sleep(4_000);
      const said = { stdout: "", stderr: "", result: "" };
      for await (const line of createInterface({ input: Readable.fromWeb(response.body as Parameters<typeof Readable.fromWeb>[0]) })) {
        const { type, text } = JSON.parse(line) as { type: string; text?: string };
        if (type === "stdout" || type === "stderr" || type === "result") said[type] += text;
      }
      const leftOut = [...said.stderr.matchAll(/(\d+) bytes left out/g)].reduce((sum, [, count]) => sum + Number(count), 0);
      assert.equal(said.stdout.length + leftOut, 150_000_000);
      assert.equal(said.result, "done");
      assert.equal((await sandbox.runCode("1 + 1")).text, "2");
    }));
}
