// Applications inside a sandbox, reached through the node: by host name and by headers, WebSocket, events, uploads.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { type IncomingMessage, request } from "node:http";
import { after, before, describe, test } from "node:test";
import { Sandbox } from "e2b";
import { WebSocket } from "ws";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

const PORT = 3000;

void describe("an application in a gVisor sandbox that listens on 127.0.0.1 only", needs("root", "runsc", "envd", "base"), () => {
  let node: TestNode;
  let sandbox: Sandbox;
  before(async () => {
    node = await startNode({ runtime: "gvisor" });
    sandbox = await Sandbox.create("base", { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey, timeoutMs: 600_000 });
    await sandbox.files.write("app.py", readFileSync(new URL("../src/web-app.py", import.meta.url), "utf8"));
    await sandbox.commands.run(`python3 app.py ${PORT}`, { background: true });
    await until("the application", async () => ((await get("/", byHeaders())).status === 200 ? true : undefined));
  });
  after(() => node[Symbol.asyncDispose]());

  const byHeaders = () => ({ "x-svc-sandbox-id": sandbox.sandboxId, "x-svc-target-port": String(PORT) });

  function get(path: string, headers: Record<string, string>, method = "GET", body?: Buffer): Promise<{ status: number; text: string }> {
    return new Promise((resolve, reject) => {
      const call = request({ host: "127.0.0.1", port: node.port, path, method, headers }, (response: IncomingMessage) => {
        const chunks: Buffer[] = [];
        response
          .on("data", (chunk: Buffer) => chunks.push(chunk))
          .on("end", () => resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString() }));
      });
      call.on("error", reject);
      call.end(body);
    });
  }

  void test("is reached under the name that getHost returns", async () => {
    const host = sandbox.getHost(PORT);
    assert.equal(host, `${PORT}-${sandbox.sandboxId}.localhost:${node.port}`);
    assert.deepEqual(await get("/", { host }), { status: 200, text: `host ${host}` });
  });

  void test("is reached under /proxy/ with either pair of headers", async () => {
    assert.equal((await get("/proxy/", byHeaders())).status, 200);
    assert.equal((await get("/proxy/", { "e2b-sandbox-id": sandbox.sandboxId, "e2b-sandbox-port": String(PORT) })).status, 200);
  });

  void test("speaks WebSocket, with its subprotocol", async () => {
    const socket = new WebSocket(`ws://127.0.0.1:${node.port}/`, ["chat"], { headers: { host: sandbox.getHost(PORT) } });
    const echoed = new Promise((resolve, reject) => socket.once("message", (data) => resolve(String(data))).once("error", reject));
    await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
    assert.equal(socket.protocol, "chat");
    socket.send("hello ".repeat(100));
    assert.equal(await echoed, "hello ".repeat(100));
    socket.close();
  });

  void test("streams events as they are sent", async () => {
    assert.equal((await get("/events", byHeaders())).text, "data: 0\n\ndata: 1\n\ndata: 2\n\n");
  });

  void test("receives a large upload completely", async () => {
    const body = randomBytes(20_000_000);
    const answer = await get("/", { ...byHeaders(), "content-length": String(body.length) }, "POST", body);
    assert.equal(answer.text, createHash("sha256").update(body).digest("hex"));
  });

  void test("a port without a listener is distinguished from a sandbox that does not run", async () => {
    const closed = await get("/", { ...byHeaders(), "x-svc-target-port": "3999" });
    assert.equal(closed.status, 502);
    assert.match(closed.text, /port is not open/);
    const gone = await get("/", { ...byHeaders(), "x-svc-sandbox-id": "inosuchsandbox000000" });
    assert.equal(gone.status, 502);
    assert.deepEqual(JSON.parse(gone.text), { sandboxId: "inosuchsandbox000000", message: "The sandbox was not found", code: 502 });
  });
});
