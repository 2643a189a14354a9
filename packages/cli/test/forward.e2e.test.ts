// `svc forward` with real sandboxes: TCP from this machine to a port inside, through a gateway and its node, and through a node alone.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { after, before, describe, test } from "node:test";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { gatewayEntry } from "@svc/harness/fronted-nodes.ts";
import { needs } from "@svc/harness/needs.ts";
import { startNode } from "@svc/harness/node.ts";
import { until } from "@svc/harness/until.ts";
import { mainFile, openPlace, type Place } from "./svc.ts";

/** Returns what it was sent, in upper case, once the client has ended its half. */
const ECHO = `
import socketserver
class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        data = b""
        while chunk := self.request.recv(65536): data += chunk
        self.request.sendall(data.upper())
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256
Server(("127.0.0.1", PORT), Handler).serve_forever()
`;

/** Reads nothing before the file exists, then counts what it was sent. */
const SLOW = `
import os, socket, time
server = socket.create_server(("127.0.0.1", PORT))
while True:
    connection, _ = server.accept()
    while not os.path.exists("/tmp/read-now"): time.sleep(0.05)
    count = 0
    while chunk := connection.recv(1 << 20): count += len(chunk)
    connection.sendall(str(count).encode())
    connection.close()
`;

const entries = [
  { name: "a gateway and its node (gVisor)", open: () => gatewayEntry("gvisor"), needs: ["root", "runsc", "envd", "base"] },
  { name: "a node without networks of its own (bubblewrap)", open: () => startNode({ runtime: "bubblewrap" }), needs: ["bwrap", "envd", "base"] },
] as const;

for (const entry of entries) {
  void describe(`a port inside a sandbox, through ${entry.name}`, needs(...entry.needs), () => {
    let server: Awaited<ReturnType<typeof entry.open>>;
    let place: Place;
    let id: string;
    const children = new DisposableStack();
    const env = () => place.env({ SDK_API_KEY: server.apiKey, SVC_URL: server.url });
    const svc = (...args: string[]) => place.svc(args, { env: env() });

    /** Starts the command, and returns the address on this machine of each port once it listens. */
    async function forward(...args: string[]): Promise<{ child: ChildProcess; said: { stdout: string; stderr: string }; ports: number[] }> {
      const child = spawn(process.execPath, [mainFile, "forward", id, ...args], { env: env(), stdio: ["ignore", "pipe", "pipe"] });
      children.defer(() => void child.kill("SIGKILL"));
      const said = { stdout: "", stderr: "" };
      child.stdout.on("data", (text) => (said.stdout += text));
      child.stderr.on("data", (text) => (said.stderr += text));
      const wanted = args.filter((word) => /^\d*:?\d+$/.test(word)).length;
      const lines = await until("a line for each port", () => {
        const found = [...said.stdout.matchAll(/^127\.0\.0\.1:(\d+) -> /gm)];
        assert.equal(child.exitCode, null, said.stderr);
        return found.length === wanted ? found : undefined;
      });
      return { child, said, ports: lines.map(([, port]) => Number(port)) };
    }

    const serve = async (program: string, port: number) => {
      const script = program.replace("PORT", String(port));
      const { code, stderr } = await svc("exec", id, "--", "sh", "-c", 'nohup python3 -c "$1" > /dev/null 2>&1 &', "sh", script);
      assert.equal(code, 0, stderr);
      await until("the server inside", async () =>
        (await svc("exec", id, "--", "python3", "-c", `import socket; socket.create_connection(("127.0.0.1", ${port}))`)).code === 0 ? true : undefined,
      );
    };

    before(async () => {
      server = await entry.open();
      place = openPlace();
      id = (await server.call(createSandbox, { templateID: "base", timeout: 3600 })).sandboxID;
      await serve(ECHO, 7000);
    });
    after(async () => {
      children.dispose();
      await place?.[Symbol.asyncDispose]();
      await server?.[Symbol.asyncDispose]();
    });

    void test("many connections at once each get their own answer after they have ended their half, and Ctrl-C ends the command cleanly", async () => {
      const { child, said, ports } = await forward(":7000");
      const answers = await Promise.all(Array.from({ length: 100 }, (_, at) => exchange(ports[0] ?? 0, Buffer.from(`message ${at} ${"x".repeat(at * 1000)}`))));
      for (const [at, answer] of answers.entries()) assert.equal(answer.toString(), `MESSAGE ${at} ${"X".repeat(at * 1000)}`);
      const open = connect(ports[0] ?? 0, "127.0.0.1");
      await once(open, "connect");
      open.on("error", () => {});
      const closed = new Promise((resolve) => open.once("close", resolve));
      child.kill("SIGINT");
      const [code, signal] = (await once(child, "exit")) as [number | null, string | null];
      await closed;
      assert.deepEqual([code, signal, said.stderr], [0, null, ""]);
    });

    void test("a server that does not read stops the sender, and every byte is there once it reads", async () => {
      await serve(SLOW, 7001);
      // The check whether the server listens was its first connection.
      await svc("exec", id, "--", "touch", "/tmp/read-now");
      const { ports } = await forward(":7001", "--no-check");
      await exchange(ports[0] ?? 0, Buffer.from("x"));
      await svc("exec", id, "--", "rm", "/tmp/read-now");
      const total = 256 << 20;
      const socket = connect({ port: ports[0] ?? 0, host: "127.0.0.1", allowHalfOpen: true });
      const chunk = Buffer.alloc(1 << 20);
      const sent = (async () => {
        for (let at = 0; at < total; at += chunk.length) if (!socket.write(chunk)) await once(socket, "drain");
        socket.end();
      })();
      let before = -1;
      const stalled = await until(
        "the sender to stop",
        async () => {
          const now = socket.bytesWritten;
          const isSame = now === before && now > 0;
          before = now;
          return isSame ? now : undefined;
        },
        1000,
      );
      assert.ok(stalled < total / 2, `${stalled} bytes were taken from the sender though nobody read`);
      await svc("exec", id, "--", "touch", "/tmp/read-now");
      const answer = await all(socket);
      await sent;
      assert.equal(answer.toString(), String(total));
    });

    void test("a port where nothing listens is refused with a message, and with --no-check each connection is refused until a server listens", async () => {
      const refused = await svc("forward", id, "7999");
      assert.deepEqual(
        [refused.code, refused.stdout, refused.stderr],
        [1, "", `svc: nothing listens on port 7999 in sandbox ${id}: start a server there first\n`],
      );
      const { said, ports } = await forward(":7002", "--no-check");
      await assert.rejects(exchange(ports[0] ?? 0, Buffer.from("early")), /ECONNRESET/);
      await until("the sentence", () =>
        said.stderr === `svc: nothing listens on port 7002 in sandbox ${id}: start a server there first\n` ? true : undefined,
      );
      await serve(ECHO, 7002);
      assert.equal((await exchange(ports[0] ?? 0, Buffer.from("late"))).toString(), "LATE");
    });

    void test("--stdio is one connection, as ssh's ProxyCommand expects it", async () => {
      const { code, stdout, stderr } = await place.svc(["forward", id, "7000", "--stdio"], { env: env(), input: "over a pipe" });
      assert.deepEqual([code, stdout, stderr], [0, "OVER A PIPE", ""]);
    });

    void test("a port that is taken here, and arguments that are not ports, are refused with what to write instead", async () => {
      const taken = createServer().listen(0, "127.0.0.1");
      await once(taken, "listening");
      const { port } = taken.address() as { port: number };
      const refused = await svc("forward", id, `${port}:7000`);
      taken.close();
      assert.equal(refused.code, 1);
      assert.match(
        refused.stderr,
        new RegExp(`^svc: cannot listen on 127\\.0\\.0\\.1:${port}: another program listens there; choose another port: svc forward ID \\d*:7000\n$`),
      );
      for (const wrong of ["http", "0", "1:2:3", "70000", "-1"]) assert.equal((await svc("forward", id, wrong)).code, 2, wrong);
      assert.match((await svc("forward", id, "49983")).stderr, /port: expected 1 to 65535 and not 49983/);
    });

    void test("a client without the sandbox's token is refused", async () => {
      const headers = { "x-svc-sandbox-id": id, "x-svc-target-port": "49983", connection: "Upgrade", upgrade: "svc-relay" };
      for (const more of [{}, { "x-access-token": "x".repeat(40) }, { "x-api-key": server.apiKey }]) {
        const lines = Object.entries({ ...headers, ...more }).map(([name, value]) => `${name}: ${value}\r\n`);
        const socket = connect({ port: Number(new URL(server.url).port), host: "127.0.0.1" });
        socket.write(`GET /proxy/forward?port=7000 HTTP/1.1\r\nHost: a\r\n${lines.join("")}\r\n`);
        const [first] = (await once(socket, "data")) as [Buffer];
        socket.destroy();
        assert.match(first.toString(), /^HTTP\/1\.1 401 /, JSON.stringify(more));
      }
    });

    void test("a forward ends with its sandbox, and reports it", async () => {
      const own = (await server.call(createSandbox, { templateID: "base", timeout: 3600 })).sandboxID;
      const [before, sandbox] = [id, own];
      id = sandbox;
      const { child, said, ports } = await forward(":7000", "--no-check");
      id = before;
      await svc("delete", sandbox);
      await assert.rejects(exchange(ports[0] ?? 0, Buffer.from("x")), /ECONNRESET/);
      const [code] = (await once(child, "exit")) as [number];
      assert.equal(code, 1);
      assert.match(said.stderr, /^svc: .*not found/);
    });
  });
}

/** Sends the bytes, ends that half, and reads the other to its end. */
async function exchange(port: number, bytes: Buffer): Promise<Buffer> {
  const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
  socket.end(bytes);
  return all(socket);
}

async function all(socket: Socket): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of socket as AsyncIterable<Buffer>) chunks.push(chunk);
  return Buffer.concat(chunks);
}
