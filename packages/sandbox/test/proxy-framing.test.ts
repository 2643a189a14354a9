// Requests and responses that two parsers might read differently, and bounds: they are refused, and nothing passes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { bodyOf, openFixture } from "./proxy-fixture.ts";

/** H stands for the Host that routes to the fixture's server. */
const refusedRequests: Record<string, string> = {
  "Content-Length with Transfer-Encoding": "POST / HTTP/1.1\r\nHost: H\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
  "Transfer-Encoding with Content-Length": "POST / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
  "two differing Content-Length": "POST / HTTP/1.1\r\nHost: H\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
  "two equal Content-Length": "POST / HTTP/1.1\r\nHost: H\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
  "a list in Content-Length": "POST / HTTP/1.1\r\nHost: H\r\nContent-Length: 4, 4\r\n\r\nabcd",
  "a signed Content-Length": "POST / HTTP/1.1\r\nHost: H\r\nContent-Length: +4\r\n\r\nabcd",
  "a negative Content-Length": "POST / HTTP/1.1\r\nHost: H\r\nContent-Length: -1\r\n\r\nabcd",
  "a hexadecimal Content-Length": "POST / HTTP/1.1\r\nHost: H\r\nContent-Length: 0x4\r\n\r\nabcd",
  "an empty Content-Length": "POST / HTTP/1.1\r\nHost: H\r\nContent-Length: \r\n\r\nabcd",
  "an absurd Content-Length": "POST / HTTP/1.1\r\nHost: H\r\nContent-Length: 99999999999999999999\r\n\r\nabcd",
  "Transfer-Encoding: identity": "POST / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: identity\r\n\r\nabcd",
  "Transfer-Encoding: gzip, chunked": "POST / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
  "Transfer-Encoding: chunked, identity": "POST / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
  "Transfer-Encoding: xchunked": "POST / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
  "Transfer-Encoding behind a vertical tab": "POST / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
  "two Transfer-Encoding": "POST / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
  "Transfer-Encoding in HTTP/1.0": "POST / HTTP/1.0\r\nHost: H\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
  "a bare line feed in the request line": "GET / HTTP/1.1\nHost: H\r\n\r\n",
  "a bare line feed behind a header": "GET / HTTP/1.1\r\nHost: H\nX: y\r\n\r\n",
  "a bare line feed as the empty line": "GET / HTTP/1.1\r\nHost: H\r\n\nGET /admin HTTP/1.1\r\n\r\n",
  "a bare carriage return in a value": "GET / HTTP/1.1\r\nHost: H\r\nX: a\rb\r\n\r\n",
  "a bare carriage return in a name": "GET / HTTP/1.1\r\nHost: H\r\nX\r: a\r\n\r\n",
  "a folded header": "GET / HTTP/1.1\r\nHost: H\r\nX: a\r\n b\r\n\r\n",
  "a folded first header": "GET / HTTP/1.1\r\n Host: H\r\n\r\n",
  "a space before the colon": "GET / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding : chunked\r\n\r\n",
  "a tab before the colon": "GET / HTTP/1.1\r\nHost: H\r\nContent-Length\t: 4\r\n\r\nabcd",
  "a header without a name": "GET / HTTP/1.1\r\nHost: H\r\n: x\r\n\r\n",
  "a header without a colon": "GET / HTTP/1.1\r\nHost: H\r\nnonsense\r\n\r\n",
  "a NUL in a name": "GET / HTTP/1.1\r\nHost: H\r\nX\0Y: a\r\n\r\n",
  "a NUL in a value": "GET / HTTP/1.1\r\nHost: H\r\nX: a\0b\r\n\r\n",
  "a control character in a value": "GET / HTTP/1.1\r\nHost: H\r\nX: a\x7fb\r\n\r\n",
  "two Host": "GET / HTTP/1.1\r\nHost: H\r\nHost: other\r\n\r\n",
  "two equal Host": "GET / HTTP/1.1\r\nHost: H\r\nHost: H\r\n\r\n",
  "no Host": "GET / HTTP/1.1\r\nX: H\r\n\r\n",
  "a Host with a path": "GET / HTTP/1.1\r\nHost: H/x\r\n\r\n",
  "a Host with user information": "GET / HTTP/1.1\r\nHost: a@H\r\n\r\n",
  "a Host list": "GET / HTTP/1.1\r\nHost: H, other\r\n\r\n",
  "an absolute target with another host": "GET http://other/ HTTP/1.1\r\nHost: H\r\n\r\n",
  "an authority as target": "CONNECT H:80 HTTP/1.1\r\nHost: H\r\n\r\n",
  "a relative target": "GET index.html HTTP/1.1\r\nHost: H\r\n\r\n",
  "an asterisk with GET": "GET * HTTP/1.1\r\nHost: H\r\n\r\n",
  "two spaces in the request line": "GET  / HTTP/1.1\r\nHost: H\r\n\r\n",
  "a tab in the request line": "GET\t/ HTTP/1.1\r\nHost: H\r\n\r\n",
  "a NUL in the target": "GET /\0 HTTP/1.1\r\nHost: H\r\n\r\n",
  "HTTP/0.9": "GET /\r\n\r\n",
  "HTTP/2 without having agreed": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
  "HTTP/1.2": "GET / HTTP/1.2\r\nHost: H\r\n\r\n",
  "text behind the version": "GET / HTTP/1.1 x\r\nHost: H\r\n\r\n",
  "a method with a brace": "G{T / HTTP/1.1\r\nHost: H\r\n\r\n",
  "a TLS hello": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
  ...Object.fromEntries(
    [
      "g\r\n",
      "-1\r\n",
      "0x5\r\n",
      " 5\r\n",
      "5 \r\n",
      "\r\n",
      "5\n",
      "5\r",
      "5;\n",
      "5;a\rb\r\n",
      "fffffffffffffffff\r\n",
      "+5\r\n",
      "5\x00\r\n",
      "2\r\nabX",
      "2\r\nab\nX",
      "0\r\nbad trailer\r\n\r\n",
      "0\r\n\n",
      "0\r\n x: y\r\n\r\n",
    ].map((chunk) => [`the chunk ${JSON.stringify(chunk)}`, `POST / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: chunked\r\n\r\n${chunk}xxxxxxxxxxxx`]),
  ),
};

void test("an ambiguous request is answered 400, and the connection ends", async (t) => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  let whole = 0;
  const { port } = await fixture.serve(sandbox.host, 0, (request, response) => {
    request.resume().on("end", () => {
      whole++;
      response.end("PASSED");
    });
  });
  for (const [name, text] of Object.entries(refusedRequests)) {
    await t.test(name, async () => {
      // The request after it must never be parsed as a separate request.
      const received = await fixture.raw(
        `${text.replaceAll(": H", `: ${port}-${sandbox.sandboxID}.localhost`).replaceAll("@H", `@${port}-${sandbox.sandboxID}.localhost`)}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n`,
      );
      assert.match(received, /^HTTP\/1\.1 400 Bad Request\r\n/);
      assert.match(received, /\r\nConnection: close\r\n/);
      assert.equal(received.match(/HTTP\/1\.1 \d/g)?.length, 1, received);
      const body = bodyOf(received) as { code: number; message: string };
      assert.equal(body.code, 400);
      assert.ok(body.message.length > 10);
    });
  }
  assert.equal(whole, 0);
});

void test("an absolute target that repeats Host is served in origin form", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const { port } = await fixture.serve(sandbox.host, 0, (request, response) => response.end(request.url));
  const host = `${port}-${sandbox.sandboxID}.localhost`;
  const received = await fixture.raw(`GET http://${host}?q=1 HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
  assert.match(received, /\r\n\r\n\/\?q=1$/);
});

const refusedResponses: Record<string, string> = {
  "both lengths": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
  "two lengths": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
  "a length that is none": "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nabcde",
  "a bare line feed": "HTTP/1.1 200 OK\nContent-Length: 5\n\nabcde",
  "a folded header": "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 5\r\n\r\nabcde",
  "a space before the colon": "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nabcde",
  "an unknown coding": "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabcde",
  "a chunk size that is none": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabcde",
  "an unasked protocol switch": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
  "no HTTP": "SSH-2.0-OpenSSH_9.2p1 Debian\r\n",
  "a head without end": `HTTP/1.1 200 OK\r\nX: ${"x".repeat(80_000)}`,
};

void test("an ambiguous response becomes a 502 and its connection is not used again", async (t) => {
  await using fixture = await openFixture();
  for (const [name, text] of Object.entries(refusedResponses)) {
    await t.test(name, async () => {
      const sandbox = fixture.sandbox();
      const closed = Promise.withResolvers<void>();
      const port = await fixture.serveRaw(sandbox.host, 0, (socket) => {
        socket.on("close", () => closed.resolve());
        socket.once("data", () => socket.write(text, "latin1"));
      });
      const received = await fixture.raw(`GET / HTTP/1.1\r\nHost: ${port}-${sandbox.sandboxID}.localhost\r\nConnection: close\r\n\r\n`);
      assert.match(received, /^HTTP\/1\.1 502 [\s\S]*x-svc-reason: bad_response/);
      assert.equal((bodyOf(received) as { code: number }).code, 502);
      await closed.promise;
    });
  }
});

void test("bytes after a response are not parsed as the next one", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  let count = 0;
  const port = await fixture.serveRaw(sandbox.host, 0, (socket) => {
    socket.on("data", () => socket.write(`HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n${++count}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison`));
  });
  const request = `GET / HTTP/1.1\r\nHost: ${port}-${sandbox.sandboxID}.localhost\r\n`;
  const received = await fixture.raw(`${request}\r\n${request}Connection: close\r\n\r\n`);
  assert.doesNotMatch(received, /poison/);
  assert.match(received, /\r\n\r\n1HTTP[\s\S]*\r\n\r\n2$/);
});

void test("a head beyond the bound gets 431, a head that does not end in time 408", async () => {
  await using fixture = await openFixture();
  assert.match(await fixture.raw(`GET / HTTP/1.1\r\nHost: a\r\nX: ${"x".repeat(80_000)}\r\n\r\n`), /^HTTP\/1\.1 431 /);
  assert.match(await fixture.raw(`GET / HTTP/1.1\r\nHost: a\r\n${"X: y\r\n".repeat(300)}\r\n`), /^HTTP\/1\.1 431 /);
  await using hasty = await openFixture({ limits: { headMs: 200 } });
  assert.match(await hasty.raw("GET / HTTP/1.1\r\nHost: a\r\nX: "), /^HTTP\/1\.1 408 /);
});

void test("a connection beyond the bound is answered 503", async () => {
  await using fixture = await openFixture({ limits: { connections: 1 } });
  using first = fixture.dial();
  first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  await first.until((received) => received.includes("control"));
  assert.match(await fixture.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), /^HTTP\/1\.1 503 [\s\S]*Retry-After: 1/);
});
