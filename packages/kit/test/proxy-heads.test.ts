// Heads and bodies as bytes: the result does not depend on where the bytes were cut, and incomplete input is never accepted.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { BodyScanner } from "../src/proxy/body-scanner.ts";
import { INCOMPLETE, REFUSED } from "../src/proxy/head-lines.ts";
import { HeaderNames } from "../src/proxy/header-names.ts";
import { CHUNKED, HOST, hopNames, RequestHead } from "../src/proxy/request-head.ts";
import { ResponseHead, UNTIL_CLOSE } from "../src/proxy/response-head.ts";

const token = fc.stringMatching(/^[A-Za-z][A-Za-z0-9!#$%&'*+.^_`|~-]{0,20}$/);
const value = fc.stringMatching(/^[\x21-\x7e]([\t -~\x80-\xff]{0,40}[\x21-\x7e])?$/);
const own = ["x-api-key", "x-access-token"];
const headers = fc
  .array(fc.tuple(token, value), { maxLength: 12 })
  .map((lines) => lines.filter(([name]) => ![...hopNames].includes(name.toLowerCase() as never)));

void test("a request head is found at any position of a buffer, and never before its last byte", () => {
  const head = new RequestHead(own, 128);
  fc.assert(
    fc.property(token, fc.stringMatching(/^\/[!-~]{0,30}$/), headers, fc.nat(20), fc.string({ maxLength: 20 }), (method, target, lines, before, after) => {
      const text = `${method} ${target} HTTP/1.1\r\nHost: a\r\n${lines.map(([name, text]) => `${name}:\t ${text} \r\n`).join("")}\r\n`;
      const bytes = Buffer.from("x".repeat(before) + text + after, "latin1");
      if (method === "CONNECT") return;
      assert.equal(head.parse(bytes, before, bytes.length), before + text.length, head.problem);
      assert.deepEqual([head.method, head.target, head.value(HOST), head.count], [method, target, "a", lines.length + 1]);
      for (const [name, text] of lines) if (own.includes(name.toLowerCase())) assert.ok(lines.some(([other]) => other === name) && text.length > 0);
      for (let end = before; end < before + text.length; end++) assert.equal(head.parse(bytes, before, end), INCOMPLETE);
    }),
    { numRuns: 150 },
  );
});

void test("a head that is refused when whole is never accepted in parts", () => {
  const head = new RequestHead(own, 128);
  const mutation = fc.tuple(fc.nat(200), fc.constantFrom("\n", "\r", "\0", " ", "\t", "\x7f", ":", "", "\x01"));
  fc.assert(
    fc.property(headers, mutation, (lines, [place, inserted]) => {
      const text = `GET / HTTP/1.1\r\nHost: a\r\n${lines.map(([name, text]) => `${name}: ${text}\r\n`).join("")}\r\n`;
      const at = place % text.length;
      const bytes = Buffer.from(text.slice(0, at) + inserted + text.slice(at), "latin1");
      const whole = head.parse(bytes, 0, bytes.length);
      for (let end = 0; end < bytes.length; end++) {
        const part = head.parse(bytes, 0, end);
        if (part > 0) assert.equal(part, whole);
        if (part === REFUSED) assert.equal(whole, REFUSED);
      }
    }),
    { numRuns: 300 },
  );
});

void test("every name of a table is found in any case, and no other name is", () => {
  const names = [
    "host",
    "x-api-key",
    "x-access-token",
    "e2b-sandbox-id",
    "e2b-sandbox-port",
    "x-svc-sandbox-id",
    "x-svc-target-port",
    "te",
    "upgrade",
    "expect",
  ];
  const table = new HeaderNames(names);
  for (const [index, name] of names.entries()) {
    for (const spelled of [name, name.toUpperCase(), `${name.slice(0, 1).toUpperCase()}${name.slice(1)}`])
      assert.equal(table.find(Buffer.from(spelled), 0, spelled.length), index + 1);
  }
  fc.assert(
    fc.property(token, (name) => {
      if (!names.includes(name.toLowerCase())) assert.equal(table.find(Buffer.from(name), 0, name.length), 0);
    }),
  );
});

/** A chunked body and its length in bytes. */
const chunkedBody = fc
  .tuple(
    fc.array(fc.tuple(fc.uint8Array({ minLength: 1, maxLength: 40 }), fc.constantFrom("", ";a=b", ';x="y z"')), { maxLength: 6 }),
    fc.array(fc.tuple(token, value), { maxLength: 2 }),
  )
  .map(([chunks, trailers]) =>
    Buffer.concat([
      ...chunks.flatMap(([bytes, extension]) => [Buffer.from(`${bytes.length.toString(16)}${extension}\r\n`), bytes, Buffer.from("\r\n")]),
      Buffer.from("0\r\n"),
      ...trailers.map(([name, text]) => Buffer.from(`${name}: ${text}\r\n`, "latin1")),
      Buffer.from("\r\n"),
    ]),
  );

void test("a chunked body ends at the same byte wherever it was cut", () => {
  fc.assert(
    fc.property(chunkedBody, fc.array(fc.nat(400)), fc.string(), (body, cuts, after) => {
      const bytes = Buffer.concat([body, Buffer.from(after, "latin1")]);
      const places = [...new Set([0, ...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length])].sort((a, b) => a - b);
      const scanner = new BodyScanner();
      scanner.start(CHUNKED);
      let taken = 0;
      for (const [index, start] of places.slice(0, -1).entries()) {
        if (scanner.done) break;
        const end = scanner.scan(bytes, start, places[index + 1] as number);
        assert.notEqual(end, -1);
        taken = end;
      }
      assert.ok(scanner.done);
      assert.equal(taken, body.length);
    }),
  );
});

void test("a response's body is framed by its status, the request's method and its headers", () => {
  const head = new ResponseHead(128);
  const read = (text: string, forHead = false) => {
    const bytes = Buffer.from(text, "latin1");
    assert.equal(head.parse(bytes, 0, bytes.length, forHead), bytes.length, head.problem);
    return [head.bodyBytes, head.keepsAlive, head.passesVerbatim];
  };
  assert.deepEqual(read("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"), [7, true, true]);
  assert.deepEqual(read("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", true), [0, true, true]);
  assert.deepEqual(read("HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\nConnection: keep-alive\r\n\r\n"), [0, true, true]);
  assert.deepEqual(read("HTTP/1.1 204\r\n\r\n"), [0, true, true]);
  assert.deepEqual(read("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nKeep-Alive: timeout=5\r\n\r\n"), [CHUNKED, true, false]);
  assert.deepEqual(read("HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: x, Close\r\n\r\n"), [7, false, false]);
  assert.deepEqual(read("HTTP/1.1 200 OK\r\n\r\n"), [UNTIL_CLOSE, false, true]);
  assert.deepEqual(read("HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\n"), [7, false, false]);
  assert.deepEqual(read("HTTP/1.0 200 OK\r\nContent-Length: 7\r\nConnection: Keep-Alive\r\n\r\n"), [7, true, false]);
});
