// The unmodified E2B JS SDK against a node or a gateway: the operations of its users, on each driver.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { describe, test } from "node:test";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { CommandExitError, FileType, NotFoundError, Sandbox, TimeoutError } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { UNTIL_BOUND_MS, until } from "../src/until.ts";

/** The server that the SDK connects to. */
export type Entry = Pick<TestNode, "url" | "apiKey" | "call"> & AsyncDisposable;
type Runtime = "gvisor" | "runc" | "bubblewrap";

export function sdkSuite(runtime: Runtime, programs: readonly string[], where = "", open: (runtime: Runtime) => Promise<Entry> = startNodeOf): void {
  void describe(`the E2B JS SDK on ${runtime}${where}`, needs("root", "envd", "base", ...programs), async () => {
    const node = await open(runtime);
    const connection = { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey };
    const sandbox = await Sandbox.create("base", {
      ...connection,
      timeoutMs: 600_000,
      metadata: { purpose: "sdk test", sign: "a=b&c d/ä" },
      envs: { GLOBAL: "g" },
    });
    const stop = async () => {
      await sandbox.kill();
      await node[Symbol.asyncDispose]();
    };

    void test("a command's output, error output and exit code are returned", async () => {
      assert.equal((await sandbox.commands.run("python3 -c 'print(6*7)'")).stdout, "42\n");
      const both = await sandbox.commands.run("echo out; echo err >&2");
      assert.deepEqual([both.stdout, both.stderr, both.exitCode], ["out\n", "err\n", 0]);
      await assert.rejects(sandbox.commands.run("exit 7"), (error: unknown) => error instanceof CommandExitError && error.exitCode === 7);
    });

    void test("a command runs as the default user in its home, or as root, in a given directory and with its own variables", async () => {
      assert.equal((await sandbox.commands.run("whoami; pwd; echo $GLOBAL")).stdout, "user\n/home/user\ng\n");
      const root = await sandbox.commands.run('whoami; pwd; echo "$OWN $GLOBAL"', { user: "root", cwd: "/etc", envs: { OWN: "o" } });
      assert.equal(root.stdout, "root\n/etc\no g\n");
      await sandbox.files.write("made-by-root", "here", { user: "root" });
      assert.equal((await sandbox.commands.run("pwd; cat made-by-root; rm made-by-root", { user: "root" })).stdout, "/root\nhere");
      // bubblewrap lets no program gain rights; `svc doctor` says so.
      if (runtime !== "bubblewrap") assert.equal((await sandbox.commands.run("sudo whoami")).stdout, "root\n");
    });

    void test("a command in the background streams, takes input, is listed, and can be connected to and killed", async () => {
      const seen: string[] = [];
      const handle = await sandbox.commands.run("cat", { background: true, stdin: true, onStdout: (text) => void seen.push(text) });
      assert.ok((await sandbox.commands.list()).some((process) => process.pid === handle.pid));
      await sandbox.commands.sendStdin(handle.pid, "one\n");
      await until("the echo of cat", () => (seen.join("") === "one\n" ? true : undefined));
      const second = await sandbox.commands.connect(handle.pid);
      assert.equal(second.pid, handle.pid);
      assert.equal(await handle.kill(), true);
      await assert.rejects(handle.wait(), CommandExitError);
      assert.equal(await sandbox.commands.kill(handle.pid), false);
    });

    void test("a command that exceeds its timeout is ended, also inside", async () => {
      await assert.rejects(sandbox.commands.run("sleep 4242", { timeoutMs: 300 }), TimeoutError);
      await until("the end of sleep", async () => ((await sandbox.commands.run("pgrep -f 'sleep 424[2]' || true")).stdout === "" ? true : undefined));
    });

    void test("a command continues when its client disconnects", async () => {
      const handle = await sandbox.commands.run("sleep 1; echo done > /tmp/went-on; sleep 4243", { background: true });
      await handle.disconnect();
      await until("the file", async () => ((await sandbox.files.exists("/tmp/went-on")) ? true : undefined));
      await sandbox.commands.kill(handle.pid);
    });

    void test("a terminal answers, resizes and ends", async () => {
      let screen = "";
      const decoder = new TextDecoder();
      const terminal = await sandbox.pty.create({ cols: 80, rows: 24, timeoutMs: UNTIL_BOUND_MS, onData: (data) => void (screen += decoder.decode(data)) });
      await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode("stty size; echo $((40+2))\n"));
      await until("24 80 and 42", () => (screen.includes("24 80") && screen.includes("42\r\n") ? true : undefined));
      await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 30 });
      await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode("stty size\n"));
      await until("30 100", () => (screen.includes("30 100") ? true : undefined));
      await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode("exit\n"));
      assert.equal((await terminal.wait()).exitCode, 0);
    });

    void test("files are written, read, listed, described, moved and removed", async () => {
      const bytes = randomBytes(3_000_000);
      await sandbox.files.write("deep/er/blob", new Blob([bytes]));
      const back = await sandbox.files.read("deep/er/blob", { format: "bytes" });
      assert.equal(createHash("sha256").update(back).digest("hex"), createHash("sha256").update(bytes).digest("hex"));
      const info = await sandbox.files.getInfo("/home/user/deep/er/blob");
      assert.deepEqual([info.type, info.size, info.owner, info.group], [FileType.FILE, 3_000_000, "user", "user"]);
      await sandbox.files.write([
        { path: "deep/a", data: "A" },
        { path: "deep/b", data: "B" },
      ]);
      assert.deepEqual((await sandbox.files.list("deep")).map((entry) => entry.name).sort(), ["a", "b", "er"]);
      assert.equal((await sandbox.files.rename("deep/a", "deep/c")).path, "/home/user/deep/c");
      assert.equal(await sandbox.files.makeDir("deep/new"), true);
      assert.equal(await sandbox.files.makeDir("deep/new"), false);
      await sandbox.files.remove("deep");
      assert.equal(await sandbox.files.exists("deep"), false);
      await assert.rejects(sandbox.files.read("no/such/file"), NotFoundError);
    });

    void test("files that the default user writes where only root may write belong to that user", async () => {
      assert.equal((await sandbox.files.write("/app/src/main.py", "print(1)")).path, "/app/src/main.py");
      assert.equal(
        (await sandbox.commands.run("stat -c '%U %a' /app /app/src /app/src/main.py; python3 /app/src/main.py; touch /app/own")).stdout,
        "user 755\nuser 755\nuser 644\n1\n",
      );
      assert.equal(await sandbox.files.makeDir("/srv/x"), true);
      assert.equal((await sandbox.files.rename("/srv/x", "/srv/y")).owner, "user");
      assert.ok((await sandbox.files.list("/root")).some(({ name }) => name === ".bashrc"));
      assert.equal(await sandbox.files.exists("/root/.bashrc"), true);
      assert.equal(await sandbox.files.exists("/root/nothing"), false);
      const url = await sandbox.uploadUrl("/opt/signed", { useSignatureExpiration: 60_000 });
      const form = new FormData();
      form.append("file", new Blob(["signed"]), "signed");
      assert.equal((await fetch(url, { method: "POST", body: form })).status, 200);
      assert.equal(await (await fetch(await sandbox.downloadUrl("/opt/signed"))).text(), "signed");
      await sandbox.commands.run("ln -s /root /home/user/lead", { user: "user" });
      await assert.rejects(sandbox.files.read("/home/user/lead/.bashrc"), /link that is not root's/);
      for (const path of ["/app", "/srv/y", "/opt/signed", "lead"]) await sandbox.files.remove(path);
      assert.equal(await sandbox.files.exists("/app"), false);
      assert.ok((await sandbox.files.list("/root")).length > 0, "a link was removed, not what it leads to");
    });

    void test("a new file is reported as created, given to its user, and written", async () => {
      await sandbox.files.makeDir("/srv/seen");
      const events: string[] = [];
      const watch = await sandbox.files.watchDir("/srv/seen", ({ type, name }) => void events.push(`${type} ${name}`));
      await sandbox.files.write("/srv/seen/f", "x");
      await until("the write", () => (events.includes("write f") ? true : undefined));
      assert.deepEqual(events.slice(0, 3), ["create f", "chmod f", "write f"]);
      await watch.stop();
      await sandbox.files.remove("/srv/seen");
    });

    void test("in a strict sandbox the file API has only its user's rights", async () => {
      const { sandboxID } = await node.call(createSandbox, { templateID: "base", strictFiles: true, timeout: 600 });
      const strict = await Sandbox.connect(sandboxID, connection);
      await assert.rejects(strict.files.write("/app/main.py", "x"), /permission denied/);
      await assert.rejects(strict.files.list("/root"), /permission denied/);
      await assert.rejects(strict.files.makeDir("/srv/x"), /permission denied/);
      await assert.rejects(strict.files.remove("/home/user"), /permission denied/);
      assert.equal(await strict.files.exists(".bashrc"), true);
      assert.equal((await strict.files.write("/root/as-root", "x", { user: "root" })).path, "/root/as-root");
      await strict.kill();
    });

    void test("a watch reports events in a directory, and below it on request", async () => {
      await sandbox.files.makeDir("watched/sub");
      const events: string[] = [];
      const watch = await sandbox.files.watchDir("watched", (event) => void events.push(`${event.type} ${event.name}`), { recursive: true });
      await sandbox.files.write("watched/sub/file", "x");
      await until("a create and a write", () =>
        events.some((each) => each === "create sub/file") && events.some((each) => each === "write sub/file") ? true : undefined,
      );
      await sandbox.files.remove("watched/sub/file");
      await until("a remove", () => (events.includes("remove sub/file") ? true : undefined));
      await watch.stop();
    });

    void test("signed URLs read and write a file without any header, and only until they expire", async () => {
      const up = await sandbox.uploadUrl("signed.txt", { useSignatureExpiration: 120 });
      const form = new FormData();
      form.set("file", new Blob(["signed content"]), "signed.txt");
      assert.equal((await fetch(up, { method: "POST", body: form })).status, 200);
      const down = await sandbox.downloadUrl("signed.txt");
      assert.equal(await (await fetch(down)).text(), "signed content");
      const forged = await fetch(down.replace(/signature=v1_.../, "signature=v1_AAA"));
      assert.ok(forged.status === 401 || forged.status === 400 || forged.status === 502, `forged signature: ${forged.status}`);
      const expired = await sandbox.downloadUrl("signed.txt", { useSignatureExpiration: -10 });
      assert.equal((await fetch(expired)).status, 401);
    });

    void test("the sandbox is described, listed by its metadata, connected to, and reported as running", async () => {
      const info = await sandbox.getInfo();
      assert.equal(info.sandboxId, sandbox.sandboxId);
      assert.equal(info.metadata["sign"], "a=b&c d/ä");
      const page = await Sandbox.list({ ...connection, query: { metadata: { sign: "a=b&c d/ä" } } }).nextItems();
      assert.deepEqual(
        page.map((each) => each.sandboxId),
        [sandbox.sandboxId],
      );
      assert.deepEqual(await Sandbox.list({ ...connection, query: { metadata: { sign: "other" } } }).nextItems(), []);
      const again = await Sandbox.connect(sandbox.sandboxId, connection);
      assert.equal((await again.commands.run("echo again")).stdout, "again\n");
      assert.equal(await sandbox.isRunning(), true);
      await sandbox.setTimeout(900_000);
      assert.ok((await sandbox.getInfo()).endAt.getTime() > Date.now() + 700_000);
    });

    void test("a killed sandbox does not run, is not found, and cannot be killed again", async () => {
      const other = await Sandbox.create("base", connection);
      assert.equal(await other.kill(), true);
      assert.equal(await other.isRunning(), false);
      assert.equal(await other.kill(), false);
      await assert.rejects(other.getInfo(), NotFoundError);
      await assert.rejects(Sandbox.connect(other.sandboxId, connection), NotFoundError);
    });

    void test("at the end nothing is left", stop);
  });
}

const startNodeOf = (runtime: Runtime): Promise<Entry> => startNode({ runtime });
