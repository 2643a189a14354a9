// Requests and responses that two parsers might read differently, and bounds: they are refused, and nothing passes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ambiguousRequests } from "@svc/harness/ambiguous-requests.ts";
import { bodyOf, openFixture } from "./proxy-fixture.ts";

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
  for (const [name, text] of Object.entries(ambiguousRequests)) {
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
