// The node's port with TLS: HTTP/1.1 and HTTP/2 to the control plane and to sandboxes, names, resets, and clients that speak something else.
import assert from "node:assert/strict";
import { test } from "node:test";
import { WebSocket, WebSocketServer } from "ws";
import { openFixture } from "./proxy-fixture.ts";
import { answerOf, ask, DOMAIN, openTlsFixture } from "./tls-fixture.ts";

void test("a node with TLS serves the control plane and the ports of sandboxes over HTTP/1.1", async () => {
  await using fixture = await openTlsFixture();
  const control = await fixture.get(`api.${DOMAIN}`, "/sandboxes");
  const seen = JSON.parse(control.body) as { who: string; headers: Record<string, string> };
  assert.deepEqual([control.status, seen.who, seen.headers["x-forwarded-proto"]], [200, "control", "https"]);
  const sandbox = fixture.sandbox();
  const { port } = await fixture.serve(sandbox.host, 0, (request, response) => response.end(`${request.headers["x-forwarded-proto"]} ${request.url}`));
  const answer = await fixture.get(`${port}-${sandbox.sandboxID}.${DOMAIN}`, "/hello");
  assert.deepEqual(answer, { status: 200, body: "https /hello" });
});

void test("SDKs get HTTP/2 by ALPN, with the same routes, bodies and trailers", async () => {
  await using fixture = await openTlsFixture();
  const sandbox = fixture.sandbox();
  const { port } = await fixture.serve(sandbox.host, 0, (request, response) => {
    response.writeHead(201, { "content-type": "text/plain", trailer: "x-sum", "set-cookie": ["a=1", "b=2"] });
    let size = 0;
    request.on("data", (piece: Buffer) => (size += piece.length));
    request.once("end", () => {
      response.write(`${request.method} ${request.url} `);
      response.addTrailers({ "x-sum": String(size) });
      response.end(String(size));
    });
  });
  const name = `${port}-${sandbox.sandboxID}.${DOMAIN}`;
  const session = await fixture.session(name);
  assert.equal(session.alpnProtocol, "h2");
  const body = Buffer.alloc(1_000_000, "x");
  const answers = await Promise.all(Array.from({ length: 10 }, (_, at) => ask(session, { ":method": "POST", ":path": `/up?n=${at}` }, body)));
  for (const [at, answer] of answers.entries()) {
    assert.deepEqual([answer.status, answer.body], [201, `POST /up?n=${at} 1000000`]);
    assert.equal(answer.trailers["x-sum"], "1000000");
    assert.deepEqual(answer.headers["set-cookie"], ["a=1", "b=2"]);
    assert.equal(answer.headers["transfer-encoding"], undefined);
  }
  const control = await ask(session, { ":path": "/sandboxes", ":authority": `api.${DOMAIN}:${fixture.port}` });
  assert.equal((JSON.parse(control.body) as { who: string }).who, "control");
  const head = await ask(session, { ":method": "HEAD", ":path": "/", ":authority": `api.${DOMAIN}` });
  assert.deepEqual([head.status, head.body], [200, ""]);
});

for (const how of ["kill", "sleep"] as const) {
  void test(`an open stream of HTTP/2 to a sandbox is reset when it is ${how === "kill" ? "killed" : "paused"}, not ended`, async () => {
    await using fixture = await openTlsFixture();
    const sandbox = fixture.sandbox();
    for (const framing of ["chunked", "counted", "until close"]) {
      const headers: Record<string, string> = framing === "counted" ? { "content-length": "100" } : {};
      const { port } = await fixture.serve(sandbox.host, 0, (_, response) => {
        if (framing === "until close") response.useChunkedEncodingByDefault = false;
        response.writeHead(200, headers).write("begun");
      });
      const name = `${port}-${sandbox.sandboxID}.${DOMAIN}`;
      const session = await fixture.session(name);
      const stream = session.request({ ":path": "/" });
      const answer = answerOf(stream);
      answer.catch(() => {});
      await new Promise((resolve) => stream.once("data", resolve));
      if (how === "kill") fixture.kill(sandbox.sandboxID);
      else fixture.sleep(sandbox);
      await assert.rejects(answer, (error: Error & { rstCode?: number }) => stream.rstCode !== 0 && error instanceof Error, framing);
      // The connection itself goes on, for other requests.
      assert.equal((await ask(session, { ":path": "/sandboxes", ":authority": `api.${DOMAIN}` })).status, 200);
      fixture.entries.set(sandbox.sandboxID, sandbox);
    }
  });
}

void test("a host that the certificate does not cover is answered 421 on a connection for another name", async () => {
  await using fixture = await openTlsFixture();
  const sandbox = fixture.sandbox();
  const { port } = await fixture.serve(sandbox.host, 0, (_, response) => response.end("here"));
  const name = `${port}-${sandbox.sandboxID}.${DOMAIN}`;
  assert.equal((await fixture.get(`api.${DOMAIN}`, "/", { host: name })).body, "here", "another name of the same certificate");
  const wrong = await fixture.get(`api.${DOMAIN}`, "/", { host: "elsewhere.example" });
  assert.equal(wrong.status, 421);
  assert.match(wrong.body, /not valid for \\"elsewhere\.example\\"/);
  const session = await fixture.session(`api.${DOMAIN}`);
  assert.equal((await ask(session, { ":path": "/", ":authority": "elsewhere.example" })).status, 421);
  assert.equal((await ask(session, { ":path": "/", ":authority": name })).body, "here");
});

void test("plain HTTP on the port of TLS gets a sentence that says so", async () => {
  await using fixture = await openTlsFixture();
  const answer = await fixture.raw("GET /sandboxes HTTP/1.1\r\nHost: localhost\r\n\r\n");
  assert.match(answer, /^HTTP\/1\.1 400 Bad Request\r\n/);
  assert.match(answer, /This port speaks TLS, and got plain HTTP: use https:\/\//);
});

void test("TLS on a port of plain HTTP gets a sentence in plain text", async () => {
  await using fixture = await openFixture();
  const hello = Buffer.from("16030100050100000100", "hex");
  assert.match(await fixture.raw(hello), /^HTTP\/1\.1 400 Bad Request[\s\S]*this port speaks plain HTTP, and got TLS: begin the URL with http:\/\//);
});

void test("WebSockets pass over TLS, by upgrade and by extended CONNECT", async () => {
  await using fixture = await openTlsFixture();
  const sandbox = fixture.sandbox();
  const { server, port } = await fixture.serve(sandbox.host, 0, () => {});
  const sockets = new WebSocketServer({ server });
  sockets.on("connection", (socket) => socket.on("message", (text) => socket.send(`echo ${text}`)));
  const name = `${port}-${sandbox.sandboxID}.${DOMAIN}`;
  const client = new WebSocket(`wss://127.0.0.1:${fixture.port}/`, [], { ca: fixture.ca, servername: name, headers: { host: name } } as object);
  await new Promise((resolve, reject) => client.once("open", resolve).once("error", reject));
  client.send("one");
  assert.equal(String(await new Promise((resolve) => client.once("message", resolve))), "echo one");
  client.terminate();
  const session = await fixture.session(name);
  const stream = session.request({ ":method": "CONNECT", ":protocol": "websocket", ":path": "/", ":scheme": "https", ":authority": name });
  const headers = await new Promise<Record<string, unknown>>((resolve) => stream.once("response", (given) => resolve({ ...given })));
  assert.equal(headers[":status"], 200);
  // A masked text frame of three bytes, with a mask of zeros.
  stream.write(Buffer.from([0x81, 0x83, 0, 0, 0, 0, ...Buffer.from("two")]));
  const frame = await new Promise<Buffer>((resolve) => stream.once("data", resolve));
  assert.equal(frame.subarray(2).toString(), "echo two");
  stream.close();
});

void test("each half of an upgraded connection ends by itself over TLS", async () => {
  await using fixture = await openTlsFixture();
  const sandbox = fixture.sandbox();
  const port = await fixture.serveRaw(sandbox.host, 0, (socket) => {
    let received = "";
    socket.on("data", (text) => (received += text));
    socket.once("data", () => socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n"));
    socket.once("end", () => socket.end(`got ${received.split("\r\n\r\n")[1]}`));
  });
  const name = `${port}-${sandbox.sandboxID}.${DOMAIN}`;
  const socket = await fixture.secure(name);
  socket.write(`GET / HTTP/1.1\r\nHost: ${name}\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n`);
  let received = "";
  socket.on("data", (text: Buffer) => (received += text.toString("latin1")));
  await new Promise((resolve) => socket.once("data", resolve));
  const closed = new Promise<void>((resolve) => socket.once("end", () => resolve()));
  socket.end("all of it");
  await closed;
  assert.match(received, /got all of it$/);
});
