// An agent's client, using the protocol's SDK, with real sandboxes: over stdin and stdout, and over HTTP.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import type { CallToolResult } from "@modelcontextprotocol/sdk/types.js";
import { SvcClient } from "@svc/contract/client.ts";
import { needs } from "@svc/harness/needs.ts";
import { startNode } from "@svc/harness/node.ts";
import { until } from "@svc/harness/until.ts";
import { listenHttp } from "../src/http.ts";
import { SessionSandboxes } from "../src/sandboxes.ts";

const svc = fileURLToPath(new URL("../../cli/src/main.ts", import.meta.url));

void describe("an agent with sandboxes by the protocol", needs("root", "runsc", "envd", "base"), () => {
  let node: Awaited<ReturnType<typeof startNode>>;
  let api: SvcClient;
  before(async () => {
    node = await startNode({ runtime: "gvisor" });
    api = new SvcClient({ baseURL: node.url, apiKey: node.apiKey });
  });
  after(() => node?.[Symbol.asyncDispose]());

  const ids = async () => {
    const found: string[] = [];
    for await (const { sandboxID } of api.list()) found.push(sandboxID);
    return found;
  };

  async function agent(...flags: string[]) {
    const client = new Client({ name: "test", version: "1" });
    const env = { ...process.env, SVC_URL: node.url, SDK_API_KEY: node.apiKey } as Record<string, string>;
    await client.connect(new StdioClientTransport({ command: process.execPath, args: ["--disable-warning=ExperimentalWarning", svc, "mcp", ...flags], env }));
    const call = async (name: string, args: Record<string, unknown> = {}) => (await client.callTool({ name, arguments: args })) as CallToolResult;
    const data = async <T>(name: string, args: Record<string, unknown> = {}) => {
      const result = await call(name, args);
      assert.ok(result.isError !== true, JSON.stringify(result.content));
      return result.structuredContent as T;
    };
    return { client, call, data, [Symbol.asyncDispose]: () => client.close() };
  }
  type Ran = { exitCode: number; stdout: string; stderr: string; timedOut: boolean };

  void test("runs commands and code in one sandbox, where files stay from call to call, and which ends with the session", async () => {
    {
      await using it = await agent();
      const tools = (await it.client.listTools()).tools.map(({ name }) => name).sort();
      assert.deepEqual(tools, [
        "list_files",
        "port_url",
        "read_file",
        "remove_file",
        "run_code",
        "run_command",
        "sandbox_create",
        "sandbox_fork",
        "sandbox_kill",
        "sandbox_list",
        "sandbox_pause",
        "start_process",
        "write_file",
      ]);
      assert.deepEqual(await it.data<Ran>("run_command", { command: "echo out; echo err >&2; exit 3" }), {
        exitCode: 3,
        stdout: "out\n",
        stderr: "err\n",
        timedOut: false,
      });
      await it.data("write_file", { path: "notes/a.txt", content: "grüße\n" });
      assert.equal((await it.data<Ran>("run_code", { code: "print(open('notes/a.txt').read().strip())" })).stdout, "grüße\n");
      assert.equal((await it.data<Ran>("run_code", { language: "bash", code: "cd notes; ls" })).stdout, "a.txt\n");
      const { entries } = await it.data<{ entries: { path: string; type: string }[] }>("list_files", { path: "notes" });
      assert.deepEqual(
        entries.map(({ path, type }) => [path, type]),
        [["/home/user/notes/a.txt", "file"]],
      );
      assert.deepEqual(await it.data("read_file", { path: "notes/a.txt", offset: 2, limit: 3, encoding: "base64" }), {
        content: Buffer.from("grüße\n").subarray(2, 5).toString("base64"),
        offset: 2,
        bytes: 3,
        sizeBytes: 8,
        more: true,
      });
      // A page of text never ends inside a character, and a file that is not text is refused instead of damaged.
      const text = await it.data<{ content: string; bytes: number }>("read_file", { path: "notes/a.txt", limit: 3 });
      assert.deepEqual([text.content, text.bytes], ["gr", 2]);
      assert.deepEqual((await it.data<{ content: string }>("read_file", { path: "notes/a.txt", offset: 2 })).content, "üße\n");
      assert.match(JSON.stringify((await it.call("read_file", { path: "notes/a.txt", offset: 3 })).content), /not valid UTF-8: read them with encoding base64/);
      assert.match(JSON.stringify((await it.call("read_file", { path: "notes/a.txt", offset: 99 })).content), /the file has 8 bytes/);
      assert.deepEqual(await it.data("remove_file", { path: "notes" }), { path: "notes", removed: true });
      assert.deepEqual(await it.data("remove_file", { path: "notes" }), { path: "notes", removed: false });
      assert.equal((await it.call("read_file", { path: "notes/a.txt" })).isError, true);
      assert.equal((await ids()).length, 1);
    }
    await until("the session's sandbox is ended", async () => ((await ids()).length === 0 ? true : undefined));
  });

  void test("a failure is an answer that the model can act on", async () => {
    await using it = await agent();
    const missing = await it.call("read_file", { path: "/nowhere" });
    assert.equal(missing.isError, true);
    assert.match(JSON.stringify(missing.content), /FILE_NOT_FOUND.*nowhere/);
    const slow = await it.call("run_command", { command: "echo begun; sleep 600", timeout_seconds: 8 });
    assert.equal(slow.isError, true);
    assert.match(JSON.stringify(slow.content), /begun.*ended after 8 s/);
    assert.match(JSON.stringify(await it.call("run_command", { command: "true", sandbox: "inosuchsandbox000000" })), /SANDBOX_NOT_FOUND/);
    assert.match(JSON.stringify(await it.call("write_file", { path: "x", content: "*", encoding: "base64" })), /not valid base64/);
    const misspelt = await it.call("run_command", { command: "true", workdir: "/tmp" });
    assert.equal(misspelt.isError, true);
    assert.match(JSON.stringify(misspelt.content), /workdir/);
    // This is the largest file that a tool accepts, in one message.
    assert.deepEqual(await it.data("write_file", { path: "large", content: "y".repeat(16 << 20) }), { path: "large", sizeBytes: 16 << 20 });
  });

  void test("large output is cut in the middle, with the number of omitted bytes", async () => {
    await using it = await agent();
    const { stdout } = await it.data<Ran>("run_command", { command: "seq 1 100000; echo the end" });
    assert.match(stdout, /^1\n2\n/);
    assert.match(stdout, /the end\n$/);
    assert.match(stdout, /\[… \d+ bytes left out/);
    assert.ok(stdout.length < 70_000);
  });

  void test("a background server is reached by the URL of its port; a fork has it, too; a paused sandbox wakes", async () => {
    await using it = await agent();
    const { pid } = await it.data<{ pid: number }>("start_process", { command: "cd /tmp && echo hello > page && exec python3 -m http.server 8090" });
    assert.ok(pid > 0);
    const page = async (sandbox?: string) => {
      const { headers, viaHeadersURL } = await it.data<{ headers: Record<string, string>; viaHeadersURL: string }>("port_url", { port: 8090, sandbox });
      return until("the page", async () => {
        const response = await fetch(`${viaHeadersURL}page`, { headers }).catch(() => undefined);
        return response?.ok === true ? response.text() : undefined;
      });
    };
    assert.equal(await page(), "hello\n");
    const silent = await it.data<{ url: string; warning?: string }>("port_url", { port: 8099 });
    assert.match(silent.warning ?? "", /^nothing listens on port 8099 in sandbox \S+: start a server there first; until then the URL answers 502$/);
    const { sandboxes } = await it.data<{ sandboxes: string[] }>("sandbox_fork", { count: 1 });
    assert.equal(await page(sandboxes[0]), "hello\n");
    await it.data("sandbox_pause");
    const listed = await it.data<{ sandboxes: { sandbox: string; state: string }[] }>("sandbox_list");
    assert.deepEqual(listed.sandboxes.map(({ state }) => state).sort(), ["paused", "running"]);
    assert.equal((await it.data<Ran>("run_command", { command: `kill -0 ${pid} && echo alive` })).stdout, "alive\n");
    await it.data("sandbox_kill", { sandbox: sandboxes[0] });
    assert.equal((await ids()).length, 1);
  });

  void test("a sandbox that has ended is reported once, and the next call starts a new one", async () => {
    await using it = await agent();
    await it.data("run_command", { command: "true" });
    for (const id of await ids()) await api.delete(id);
    assert.match(JSON.stringify(await it.call("run_command", { command: "true" })), /has ended, and its files are gone; call again/);
    assert.equal((await it.data<Ran>("run_command", { command: "echo new" })).stdout, "new\n");
  });

  void test("over HTTP each session has its own sandbox, and a token is required if one is set", async () => {
    await using undo = new AsyncDisposableStack();
    const server = await listenHttp({
      host: "127.0.0.1",
      port: 0,
      token: "secret",
      idleMs: 60_000,
      openSandboxes: () => new SessionSandboxes(api, { template: "base", timeoutSeconds: 600, keep: false }),
    });
    undo.defer(() => server.close());
    const open = async (token: string) => {
      const client = new Client({ name: "test", version: "1" });
      const transport = new StreamableHTTPClientTransport(new URL(server.url), { requestInit: { headers: { authorization: `Bearer ${token}` } } });
      await client.connect(transport as Parameters<typeof client.connect>[0]);
      undo.defer(() => client.close());
      return {
        transport,
        run: async (command: string) => ((await client.callTool({ name: "run_command", arguments: { command } })).structuredContent as Ran).stdout,
      };
    };
    await assert.rejects(open("wrong"), /401|token|Unauthorized/i);
    const [one, two] = [await open("secret"), await open("secret")];
    await one.run("echo mine > file");
    assert.equal(await two.run("cat file 2>/dev/null || echo none"), "none\n");
    assert.equal(await one.run("cat file"), "mine\n");
    assert.equal((await ids()).length, 2);
    await one.transport.terminateSession();
    await until("the ended session's sandbox is gone", async () => ((await ids()).length === 1 ? true : undefined));
  });
});
