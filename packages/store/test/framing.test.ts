// How the metadata server frames requests: input that two parsers could read differently is refused, and ends the connection.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { startMetadataServer, type TestServer } from "./server.ts";

/** Returns everything that the server answers to these bytes until it closes, or until this side does after `answers` answers. */
function said(server: TestServer, bytes: string | readonly string[], answers = Number.POSITIVE_INFINITY): Promise<string> {
  return new Promise((resolve, reject) => {
    let got = "";
    const socket = connect(Number(new URL(server.url).port), "127.0.0.1", async () => {
      for (const part of typeof bytes === "string" ? [bytes] : bytes) {
        socket.write(part);
        await new Promise(setImmediate);
      }
    });
    socket.setEncoding("latin1").on("data", (chunk: string) => {
      got += chunk;
      if ((got.match(/HTTP\/1\.1 /g)?.length ?? 0) >= answers) socket.end();
    });
    socket.on("close", () => resolve(got)).on("error", reject);
  });
}
const statuses = (text: string) => [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map((found) => Number(found[1]));

void test("a head that another parser could read differently is refused with 400 and ends the connection, and its body is not taken for a second request", async () => {
  await using server = await startMetadataServer();
  const smuggled = "PUT /metadata?key=smuggled HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1";
  for (const lines of [
    `Content-Length : ${smuggled.length}`,
    ` Content-Length: ${smuggled.length}`,
    `Content-Length: +${smuggled.length}`,
    `Content-Length: ${smuggled.length}\r\nContent-Length: ${smuggled.length}`,
    `Content-Length: ${smuggled.length}\r\nTransfer-Encoding: chunked`,
    "Transfer-Encoding: gzip, chunked",
    `X: y\nContent-Length: ${smuggled.length}`,
    "X\u0000: y",
    "Host: y",
  ])
    assert.deepEqual(statuses(await said(server, `PUT /metadata?key=a HTTP/1.1\r\nHost: x\r\n${lines}\r\n\r\n${smuggled}`)), [400], lines);
  for (const line of ["GET  /health HTTP/1.1", "GET /health HTTP/2.0", "GET /health", "GET /health HTTP/1.1 x", "/health GET HTTP/1.1"])
    assert.deepEqual(statuses(await said(server, `${line}\r\nHost: x\r\n\r\n`)), [400], line);
  assert.deepEqual(statuses(await said(server, "PUT /metadata?key=a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n")), [400]);
  for (const key of ["a", "smuggled"]) assert.equal((await server.fetch(key)).status, 404);
});

void test("a client of another protocol is answered 400 at its first bytes", async () => {
  await using server = await startMetadataServer();
  const hello = "\u0016\u0003\u0001\u0002\u0000\u0001\u0000\u0001\u00fc\u0003\u0003";
  for (const bytes of [hello, "\u0000", "hello there\r\n", "GET /health SMTP/1.1\r\n", "G".repeat(100)]) {
    const text = await said(server, bytes);
    assert.deepEqual(statuses(text), [400], JSON.stringify(bytes));
    assert.match(text, /"error_code":"INVALID_REQUEST"/);
  }
  // A head may still arrive byte by byte.
  assert.deepEqual(statuses(await said(server, [..."GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"])), [200]);
});

void test("a target in absolute form is served, and a connection ends when one of its options is close", async () => {
  await using server = await startMetadataServer();
  assert.deepEqual(statuses(await said(server, "GET http://x/health HTTP/1.1\r\nHost: x\r\n\r\n", 1)), [200]);
  assert.deepEqual(
    statuses(await said(server, "GET /health HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, close\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n")),
    [200],
  );
  assert.deepEqual(statuses(await said(server, "GET /health HTTP/1.0\r\n\r\n")), [200]);
});

void test("health and metrics take GET and HEAD, and every other method is 405 alone", async () => {
  await using server = await startMetadataServer();
  for (const path of ["/health", "/metrics"]) {
    const text = await said(server, `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`);
    assert.deepEqual(statuses(text), [405], path);
    assert.match(text, /\r\nAllow: GET, HEAD\r\n/);
  }
});

void test("requests in single bytes, and many in one piece, are answered one after the other", async () => {
  await using server = await startMetadataServer();
  const put = "PUT /metadata?key=slow HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\n\r\n";
  const get = "GET /metadata?key=slow HTTP/1.1\r\nHost: x\r\n\r\n";
  const text = await said(server, [...`${put}${get}`], 2);
  assert.deepEqual(statuses(text), [200, 200]);
  assert.match(text, /abcd$/);
  const many = `${get.repeat(500)}PUT /metadata?key=slow HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nz${get.repeat(500)}`;
  const answered = await said(server, many, 1001);
  assert.deepEqual(new Set(statuses(answered)), new Set([200]));
  assert.equal(statuses(answered).length, 1001);
  assert.match(answered, /z$/);
});

void test("a client that expects 100-continue before its body gets it, and one that does not expect it does not", async () => {
  await using server = await startMetadataServer();
  const text = await new Promise<string>((resolve, reject) => {
    let got = "";
    const socket = connect(Number(new URL(server.url).port), "127.0.0.1", () =>
      socket.write("PUT /metadata?key=e HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"),
    );
    socket.setEncoding("latin1").on("data", (chunk: string) => {
      got += chunk;
      if (got === "HTTP/1.1 100 Continue\r\n\r\n") socket.write("ab");
    });
    socket.on("close", () => resolve(got)).on("error", reject);
  });
  assert.deepEqual(statuses(text), [100, 200]);
  const large = "y".repeat(100_000);
  assert.deepEqual(statuses(await said(server, `PUT /metadata?key=l HTTP/1.1\r\nHost: x\r\nContent-Length: ${large.length}\r\n\r\n${large}`, 1)), [200]);
  assert.equal((await (await server.fetch("l")).text()).length, large.length);
});
