// network.httpsPorts: applications that speak TLS themselves are reached through the same names and rules as others.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Sandbox } from "e2b";
import { startFrontedNodes } from "../src/fronted-nodes.ts";
import { needs } from "../src/needs.ts";
import { makeAuthority } from "../src/test-authority.ts";

const server = `import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path.startswith("/bytes"): body = b"x" * int(self.path.split("?")[1])
        elif body == b"": body = (self.headers["x-forwarded-proto"] or "none").encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST = answer
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer.request_queue_size = 128
host, port = sys.argv[1], int(sys.argv[2])
serving = http.server.ThreadingHTTPServer((host, port), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/tmp/cert.pem", "/tmp/key.pem")
serving.socket = context.wrap_socket(serving.socket, server_side=True)
serving.serve_forever()`;

void test(
  "a server that speaks TLS itself is reached at its port, also if it listens on loopback alone, and others in a sentence",
  needs("root", "runc", "envd", "base"),
  async () => {
    await using deployment = await startFrontedNodes({ nodes: 1 });
    const [node] = deployment.nodes;
    for (const entry of [node, deployment.gateway]) {
      assert.ok(entry !== undefined);
      const at = { apiUrl: entry.url, sandboxUrl: entry.url, apiKey: entry.apiKey };
      await assert.rejects(Sandbox.create("base", { ...at, network: { httpsPorts: [49983] } }), /httpsPorts.*envd's own port/);
      const sandbox = await Sandbox.create("base", { ...at, network: { httpsPorts: [8443, 8444, 8445, 8446] }, timeoutMs: 600_000 });
      assert.deepEqual((await sandbox.getInfo()).network?.httpsPorts, [8443, 8444, 8445, 8446]);
      const { certificate, key } = makeAuthority("an application").host("app.example");
      await sandbox.files.write("/tmp/cert.pem", certificate);
      await sandbox.files.write("/tmp/key.pem", key);
      await sandbox.files.write("/tmp/server.py", server);
      for (const [host, port] of [
        ["0.0.0.0", 8443],
        ["127.0.0.1", 8444],
      ] as const) {
        await sandbox.commands.run(`exec python3 /tmp/server.py ${host} ${port}`, { background: true, timeoutMs: 0 });
        await sandbox.commands.run(`until curl -skf -o /dev/null https://127.0.0.1:${port}/; do sleep 0.1; done`, { timeoutMs: 60_000 });
      }
      await sandbox.commands.run("exec python3 -m http.server 8445", { background: true, timeoutMs: 0 });
      await sandbox.commands.run("until curl -sf -o /dev/null http://127.0.0.1:8445/; do sleep 0.1; done", { timeoutMs: 60_000 });
      const ask = (port: number, path = "/", init: RequestInit = {}) =>
        fetch(`${entry.url}/proxy${path}`, { ...init, headers: { "x-svc-sandbox-id": sandbox.sandboxId, "x-svc-target-port": String(port) } });
      const body = "b".repeat(3_000_000);
      for (const port of [8443, 8444]) {
        assert.equal(await (await ask(port)).text(), "http");
        assert.equal(await (await ask(port, "/", { method: "POST", body })).text(), body, "a body both ways");
        assert.equal((await (await ask(port, "/bytes?5000000")).arrayBuffer()).byteLength, 5_000_000);
        const all = await Promise.all(Array.from({ length: 20 }, async () => (await ask(port)).text()));
        assert.deepEqual(new Set(all), new Set(["http"]));
      }
      const plain = await ask(8445);
      assert.equal(plain.status, 502);
      assert.match(await plain.text(), /the server on port 8445 did not complete a TLS handshake, which network.httpsPorts demands/);
      const closed = await ask(8446);
      assert.equal(closed.status, 502);
      assert.match(await closed.text(), /The sandbox is running but port is not open/);
      await assert.rejects(
        fetch(`${entry.url}/sandboxes/${sandbox.sandboxId}/network`, {
          method: "PUT",
          headers: { "x-api-key": entry.apiKey, "content-type": "application/json" },
          body: JSON.stringify({ httpsPorts: [1] }),
        }).then(async (answer) => {
          if (!answer.ok) throw new Error(await answer.text());
        }),
        /they are set when a sandbox is created/,
      );
      await sandbox.kill();
    }
  },
);
