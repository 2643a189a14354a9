// A gateway with TLS in front of a node without: HTTP/2 and gRPC to an application in a sandbox, and what the application learns of the client.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { connect } from "node:http2";
import { join } from "node:path";
import { describe, test } from "node:test";
import { connect as connectTls } from "node:tls";
import { startGateway } from "@svc/harness/gateway.ts";
import { needs } from "@svc/harness/needs.ts";
import { startNode } from "@svc/harness/node.ts";
import { until } from "@svc/harness/until.ts";
import { Sandbox } from "e2b";

const KEY = "k".repeat(40);
const BOUND_MS = 60_000;

type Answered = { readonly headers: Record<string, unknown>; readonly trailers: Record<string, unknown>; readonly body: Buffer };

void describe("a gateway with TLS", needs("root", "envd", "base", "runc", "python-clients"), () => {
  void test("HTTP/2 and gRPC reach an application through the gateway, which learns that the client used https", async () => {
    await using node = await startNode({ runtime: "runc", env: { SVC_API_KEY: KEY, SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: "s".repeat(40) } });
    await using gateway = await startGateway({ nodes: [node.url], apiKey: KEY, flags: ["--tls=self-signed"] });
    const { address, url } = JSON.parse(readFileSync(join(gateway.home, "node.json"), "utf8")) as { address: string; url: string };
    assert.match(url, /^https:/);
    await until("the node", async () => ((await fetch(`${address}/health`)).ok ? true : undefined));
    const sandbox = await Sandbox.create("base", { apiUrl: address, sandboxUrl: address, apiKey: KEY });
    const packages = execFileSync("tar", ["-C", process.env["SVC_PYTHON_CLIENTS"] ?? "", "-c", "h2", "hpack", "hyperframe"], { maxBuffer: 1 << 26 });
    await sandbox.files.write("/tmp/packages.tar", new Uint8Array(packages).buffer);
    await sandbox.files.write("/tmp/server.py", readFileSync(new URL("./h2c_server.py", import.meta.url), "utf8"));
    await sandbox.commands.run("tar -C /tmp -xf /tmp/packages.tar");
    const server = await sandbox.commands.run("python3 /tmp/server.py 8081", { background: true });
    await sandbox.commands.run("until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8081))'; do sleep 0.2; done");
    const name = `8081-${sandbox.sandboxId}.svc.localhost`;
    const ca = readFileSync(join(gateway.home, "tls", "authority.pem"), "utf8");
    const session = connect(`https://${name}`, {
      createConnection: () => connectTls({ host: "127.0.0.1", port: gateway.port, ca, servername: name, ALPNProtocols: ["h2"] }),
    });
    session.on("error", () => {});
    const ask = (headers: Record<string, string>, body: Buffer) =>
      new Promise<Answered>((resolve, reject) => {
        const stream = session.request(headers);
        const bound = setTimeout(() => stream.destroy(new Error("no answer in time")), BOUND_MS);
        const pieces: Buffer[] = [];
        let [given, trailers]: Record<string, unknown>[] = [{}, {}];
        stream.on("response", (all) => (given = { ...all }));
        stream.on("trailers", (all) => (trailers = { ...all }));
        stream.on("data", (piece: Buffer) => pieces.push(piece));
        stream.once("error", reject).once("close", () => {
          clearTimeout(bound);
          resolve({ headers: given ?? {}, trailers: trailers ?? {}, body: Buffer.concat(pieces) });
        });
        // A stream of GET has ended already.
        if (body.length > 0) stream.end(body);
      });
    const message = Buffer.from("\0\0\0\0\x05hello", "latin1");
    const call = { ":method": "POST", ":path": "/test.Echo/Unary", "content-type": "application/grpc", te: "trailers", "x-api-key": KEY };
    const answer = await ask(call, message);
    assert.deepEqual([answer.headers[":status"], answer.body, answer.trailers["grpc-status"]], [200, message, "0"]);
    assert.deepEqual([answer.headers["x-seen-proto"], answer.headers["x-seen-key"]], ["https", "none"]);
    await server.kill();
    const closed = await ask(call, message);
    assert.deepEqual([closed.headers["grpc-status"], closed.headers["grpc-message"]], ["14", "The sandbox is running but port is not open"]);
    const plain = await ask({ ":method": "GET", ":path": "/" }, Buffer.alloc(0));
    assert.equal(plain.headers[":status"], 502);
    session.destroy();
    await sandbox.kill();
  });
});
