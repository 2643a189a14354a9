// The W3C trace context passes from a client through the gateway to the node and into the sandbox, and is on the log lines of both servers.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { startGateway } from "@svc/harness/gateway.ts";
import { needs } from "@svc/harness/needs.ts";
import { startNode } from "@svc/harness/node.ts";
import { until } from "@svc/harness/until.ts";
import { Sandbox } from "e2b";

const KEY = "k".repeat(40);
const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const trace = { traceparent: `00-${TRACE}-00f067aa0ba902b7-01`, tracestate: "vendor=1" };

void describe("a trace", needs("root", "envd", "base", "runc"), () => {
  void test("a trace reaches the node with a create and an application with a request, and both servers log its id", async () => {
    await using node = await startNode({ runtime: "runc", env: { SVC_API_KEY: KEY, SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: "s".repeat(40) } });
    await using gateway = await startGateway({ nodes: [node.url], apiKey: KEY });
    await until("the node", async () => ((await fetch(`${gateway.url}/health`)).ok ? true : undefined));
    const response = await fetch(`${gateway.url}/sandboxes`, {
      method: "POST",
      headers: { "x-api-key": KEY, "content-type": "application/json", ...trace },
      body: JSON.stringify({ templateID: "base" }),
    });
    const { sandboxID } = (await response.json()) as { sandboxID: string };
    for (const server of [gateway, node]) {
      await until("its line", () => (server.log().includes(TRACE) ? true : undefined));
      const lines = server
        .log()
        .split("\n")
        .filter((line) => line.includes(TRACE))
        .map((line) => JSON.parse(line) as { traceID: string; operation?: string });
      assert.ok(lines.some(({ traceID, operation }) => traceID === TRACE && operation?.startsWith("createSandbox")));
    }
    const sandbox = await Sandbox.connect(sandboxID, { apiUrl: gateway.url, sandboxUrl: gateway.url, apiKey: KEY });
    const echo =
      "import http.server as h\nclass E(h.BaseHTTPRequestHandler):\n def do_GET(s):\n  s.send_response(200);s.end_headers();s.wfile.write(str(s.headers).encode())\nh.HTTPServer(('',8081),E).serve_forever()";
    await sandbox.files.write("/tmp/echo.py", echo);
    await sandbox.commands.run("python3 /tmp/echo.py", { background: true });
    const headers = { host: `8081-${sandboxID}.localhost`, ...trace };
    const echoed = await until("the application", async () => {
      const answer = await fetch(gateway.url, { headers: { ...headers, "e2b-sandbox-id": sandboxID, "e2b-sandbox-port": "8081" } });
      return answer.ok ? await answer.text() : undefined;
    });
    assert.match(echoed, new RegExp(`traceparent: ${trace.traceparent}`));
    assert.match(echoed, /tracestate: vendor=1/);
    await sandbox.kill();
  });
});
