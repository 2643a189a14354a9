// The protocol's revision without sessions, progress, images, files as resources, completion and prompts, with the SDK's client of today.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { type CallToolResult, Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { SvcClient } from "@svc/contract/client.ts";
import { needs } from "@svc/harness/needs.ts";
import { startNode } from "@svc/harness/node.ts";
import { type HttpServer, listenHttp } from "../src/http.ts";
import { SessionSandboxes } from "../src/sandboxes.ts";

const svc = fileURLToPath(new URL("../../cli/src/main.ts", import.meta.url));
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const REVISION = "2026-07-28";

void describe("an agent with the newest revision of the protocol", needs("root", "runsc", "envd", "base"), () => {
  let node: Awaited<ReturnType<typeof startNode>>;
  let http: HttpServer;
  before(async () => {
    node = await startNode({ runtime: "gvisor" });
    const api = new SvcClient({ baseURL: node.url, apiKey: node.apiKey });
    const openSandboxes = (kind: { stateless: boolean }) => new SessionSandboxes(api, { template: undefined, timeoutSeconds: 600, keep: false, ...kind });
    http = await listenHttp({ host: "127.0.0.1", port: 0, token: "secret", idleMs: 60_000, openSandboxes });
  });
  after(async () => {
    await http?.close();
    await node?.[Symbol.asyncDispose]();
  });

  async function connect(over: "http" | "stdio", mode: "auto" | "legacy" = "auto") {
    const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode } });
    const env = { ...process.env, SVC_URL: node.url, SDK_API_KEY: node.apiKey } as Record<string, string>;
    const args = ["--disable-warning=ExperimentalWarning", svc, "mcp"];
    const transport =
      over === "http"
        ? new StreamableHTTPClientTransport(new URL(http.url), { requestInit: { headers: { authorization: "Bearer secret" } } })
        : new StdioClientTransport({ command: process.execPath, args, env });
    await client.connect(transport);
    const call = async (name: string, args: Record<string, unknown> = {}) => (await client.callTool({ name, arguments: args })) as CallToolResult;
    const data = async <T>(name: string, args: Record<string, unknown> = {}) => {
      const result = await call(name, args);
      assert.ok(result.isError !== true, JSON.stringify(result.content));
      return result.structuredContent as T;
    };
    return { client, call, data, [Symbol.asyncDispose]: () => client.close() };
  }

  void test("over HTTP no session is needed: sandbox_create gives an id that each call names", async () => {
    await using it = await connect("http");
    assert.equal(it.client.getNegotiatedProtocolVersion(), REVISION);
    const refused = await it.call("run_command", { command: "true" });
    assert.equal(refused.isError, true);
    assert.match(JSON.stringify(refused.content), /no session: start one with sandbox_create, and pass its id/);
    const { sandbox } = await it.data<{ sandbox: string }>("sandbox_create");
    assert.equal((await it.data<{ stdout: string }>("run_command", { command: "echo mine > file; cat file", sandbox })).stdout, "mine\n");
    {
      // Another connection uses the same sandbox.
      await using other = await connect("http");
      assert.equal((await other.data<{ stdout: string }>("run_command", { command: "cat file", sandbox })).stdout, "mine\n");
    }
    await it.data("sandbox_kill", { sandbox });
  });

  void test("on stdin and stdout the connection is the session, and its sandbox starts with the first call", async () => {
    await using it = await connect("stdio");
    assert.equal(it.client.getNegotiatedProtocolVersion(), REVISION);
    assert.equal((await it.data<{ stdout: string }>("run_command", { command: "echo here" })).stdout, "here\n");
  });

  void test("a long command reports progress, so a client that extends its time-out by it waits", async () => {
    const waits = async (over: "http" | "stdio", mode: "auto" | "legacy") => {
      await using it = await connect(over, mode);
      const sandbox = over === "http" ? (await it.data<{ sandbox: string }>("sandbox_create")).sandbox : undefined;
      const messages: (string | undefined)[] = [];
      const result = (await it.client.callTool(
        { name: "run_command", arguments: { command: "echo step one; sleep 14; echo done", sandbox } },
        { timeout: 12_000, resetTimeoutOnProgress: true, onprogress: ({ message }) => void messages.push(message) },
      )) as CallToolResult;
      assert.equal((result.structuredContent as { stdout: string }).stdout, "step one\ndone\n");
      assert.ok(messages.length >= 2, messages.join());
      assert.match(messages[0] ?? "", /^\d+ s: step one$/);
      if (sandbox !== undefined) await it.data("sandbox_kill", { sandbox });
    };
    await Promise.all([waits("http", "auto"), waits("stdio", "legacy")]);
  });

  void test("an image is read as one, and other files are resources with their type", async () => {
    await using it = await connect("stdio");
    await it.data("write_file", { path: "dot.png", content: PNG, encoding: "base64" });
    await it.data("write_file", { path: "not-an-image.png", content: "text" });
    await it.data("write_file", { path: "data.bin", content: Buffer.from([0xff, 0, 1]).toString("base64"), encoding: "base64" });
    const read = await it.call("read_file", { path: "dot.png" });
    assert.deepEqual(read.content, [{ type: "image", mimeType: "image/png", data: PNG }]);
    assert.equal((await it.data<{ content: string }>("read_file", { path: "not-an-image.png" })).content, "text");
    const binary = await it.call("read_file", { path: "data.bin" });
    const uri = /sandbox:\/\/\w+\/home\/user\/data\.bin/.exec(JSON.stringify(binary.content))?.[0] ?? "";
    assert.deepEqual((await it.client.readResource({ uri })).contents, [{ uri, mimeType: "application/octet-stream", blob: "/wAB" }]);
    const { resources } = await it.client.listResources();
    assert.deepEqual(resources.map(({ name, mimeType, size }) => [name, mimeType, size]).sort(), [
      ["data.bin", "application/octet-stream", 3],
      ["dot.png", "image/png", 70],
      ["not-an-image.png", "image/png", 4],
    ]);
    const image = resources.find(({ name }) => name === "dot.png")?.uri ?? "";
    assert.deepEqual((await it.client.readResource({ uri: image })).contents, [{ uri: image, mimeType: "image/png", blob: PNG }]);
    await assert.rejects(it.client.readResource({ uri: image.replace("dot", "none") }), /none\.png/);
  });

  void test("ids and paths complete, and prompts tell how to use the tools", async () => {
    await using it = await connect("stdio");
    await it.data("write_file", { path: "notes/a.txt", content: "a" });
    const [{ uriTemplate } = { uriTemplate: "" }] = (await it.client.listResourceTemplates()).resourceTemplates;
    const { sandboxes } = await it.data<{ sandboxes: { sandbox: string }[] }>("sandbox_list");
    const id = sandboxes[0]?.sandbox ?? "";
    const ref = { type: "ref/resource" as const, uri: uriTemplate };
    const complete = async (name: string, value: string, given?: Record<string, string>) =>
      (await it.client.complete({ ref, argument: { name, value }, ...(given === undefined ? {} : { context: { arguments: given } }) })).completion.values;
    assert.ok((await complete("sandbox", id.slice(0, 5))).includes(id));
    assert.deepEqual(await complete("path", "home/user/no", { sandbox: id }), ["home/user/notes/"]);
    assert.deepEqual(await complete("path", "home/user/notes/", { sandbox: id }), ["home/user/notes/a.txt"]);
    const prompts = (await it.client.listPrompts()).prompts.map(({ name }) => name);
    assert.deepEqual(prompts.sort(), ["analyze-data", "serve-app", "try-several-ways"]);
    const completed = await it.client.complete({ ref: { type: "ref/prompt", name: "serve-app" }, argument: { name: "sandbox", value: id.slice(0, 5) } });
    assert.ok(completed.completion.values.includes(id));
    const { messages } = await it.client.getPrompt({ name: "try-several-ways", arguments: { task: "Sort a list.", ways: "2", sandbox: id } });
    assert.match(JSON.stringify(messages), new RegExp(`Sort a list\\..*sandbox_fork with count 2.*Work in sandbox ${id}`));
  });
});
