// The HTTP server accepts the protocol's requests and refuses all others; these tests need no sandbox.
import assert from "node:assert/strict";
import { request } from "node:http";
import { test } from "node:test";
import { SvcClient } from "@svc/contract/client.ts";
import { listenHttp } from "../src/http.ts";
import { Output } from "../src/output.ts";
import { portAddress } from "../src/port-address.ts";
import { SessionSandboxes } from "../src/sandboxes.ts";

const client = new SvcClient({ baseURL: "http://127.0.0.1:9", apiKey: "none" });
const openSandboxes = () => new SessionSandboxes(client, { template: "base", timeoutSeconds: 60, keep: false });
const initialize = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "t", version: "1" } },
};
const accept = { accept: "application/json, text/event-stream", "content-type": "application/json" };

function post(url: string, headers: Record<string, string>, body: string): Promise<{ code: number; text: string; session: string | undefined }> {
  return new Promise((resolve, reject) => {
    const outgoing = request(url, { method: "POST", headers }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
      });
      response.once("end", () => resolve({ code: response.statusCode ?? 0, text, session: response.headers["mcp-session-id"] as string | undefined }));
    });
    outgoing.once("error", reject).end(body);
  });
}

void test("without a token, a request under another host name or from another origin is refused", async () => {
  const server = await listenHttp({ host: "127.0.0.1", port: 0, token: undefined, idleMs: 60_000, openSandboxes });
  try {
    const body = JSON.stringify(initialize);
    const begun = await post(server.url, accept, body);
    assert.equal(begun.code, 200, begun.text);
    assert.ok(begun.session !== undefined);
    for (const headers of [{ host: "evil.example" }, { origin: "https://evil.example" }] as Record<string, string>[]) {
      const { code, text } = await post(server.url, { ...accept, ...headers }, body);
      assert.equal(code, 403);
      assert.match(text, /--token-file/);
    }
    assert.match((await post(server.url, accept, "{")).text, /not valid JSON/);
    assert.match((await post(server.url, accept, JSON.stringify({ jsonrpc: "2.0", id: 2, method: "tools/list" }))).text, /begins with an initialize request/);
    assert.equal((await post(server.url, { ...accept, "mcp-session-id": "gone" }, body)).code, 404);
    assert.equal((await post(server.url.replace("/mcp", "/other"), accept, body)).code, 404);
  } finally {
    await server.close();
  }
});

void test("at most a hundred sessions are open, and the next one is refused with that reason", async () => {
  const server = await listenHttp({ host: "127.0.0.1", port: 0, token: "t", idleMs: 60_000, openSandboxes });
  try {
    const headers = { ...accept, authorization: "Bearer t" };
    for (let count = 0; count < 100; count++) assert.equal((await post(server.url, headers, JSON.stringify(initialize))).code, 200);
    const { code, text } = await post(server.url, headers, JSON.stringify(initialize));
    assert.equal(code, 503);
    assert.match(text, /100 sessions are open/);
    assert.equal((await post(server.url, { ...accept, authorization: "Bearer wrong" }, "{}")).code, 401);
  } finally {
    await server.close();
  }
});

void test("output keeps its beginning and its end, however it is split", () => {
  const whole = Buffer.from("a".repeat(40_000) + "b".repeat(40_000));
  for (const size of [1_000, 33_000, 80_000]) {
    const output = new Output();
    for (let at = 0; at < whole.length; at += size) output.add(whole.subarray(at, at + size));
    assert.match(output.text, new RegExp(`^a{32768}\n\\[… ${80_000 - 65_536} bytes left out.*\n b*`.replace(" b*", "b{32768}$")));
  }
  const small = new Output();
  small.add(Buffer.from("gr"));
  small.add(Buffer.from("üße"));
  assert.equal(small.text, "grüße");
});

void test("a port's address is a name of this machine on loopback, otherwise of the deployment's domain", () => {
  const named = { sandboxID: "iabc", domain: "boxes.example", trafficAccessToken: "tok" };
  assert.equal(portAddress("http://127.0.0.1:8000", named, 80).url, "http://80-iabc.localhost:8000/");
  assert.equal(portAddress("https://api.example", named, 80).url, "https://80-iabc.boxes.example/");
  assert.equal(portAddress("https://api.example", named, 80).headers["svc-traffic-access-token"], "tok");
});
