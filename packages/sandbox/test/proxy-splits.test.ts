// The same bytes cut at random offsets, in requests and responses, give the same answers.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as tick } from "node:timers/promises";
import fc from "fast-check";
import { openFixture } from "./proxy-fixture.ts";

/** Writes `text` in pieces that end at `cuts`, and lets the other side read in between. */
async function writeCut(write: (piece: string) => void, text: string, cuts: readonly number[]): Promise<void> {
  const offsets = [...new Set([0, ...cuts.map((cut) => cut % text.length), text.length])].sort((a, b) => a - b);
  for (const [index, start] of offsets.slice(0, -1).entries()) {
    write(text.slice(start, offsets[index + 1]));
    await tick();
    await tick();
  }
}

const responses = [
  "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst",
  "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nseco\r\n2\r\nnd\r\n0\r\nX-Sum: 1\r\n\r\n",
  "HTTP/1.1 204 No Content\r\n\r\n",
  "HTTP/1.1 404 Not Found\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n",
];
const requests = (host: string) => [
  `POST /1 HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 11\r\n\r\nhello world`,
  `PUT /2 HTTP/1.1\r\nHost: ${host}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\na\r\n0123456789\r\n0\r\n\r\n`,
  `\r\nGET /3 HTTP/1.1\r\nHost: ${host}\r\nX-Long: ${"x".repeat(300)}\r\n\r\n`,
  `DELETE /4 HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`,
];

void test("pipelined requests get the same answers wherever their bytes and those of the responses are cut", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  let cuts: readonly number[] = [];
  let arrived = "";
  const port = await fixture.serveRaw(sandbox.host, 0, (socket) => {
    let request = "";
    socket.setNoDelay(true).on("data", (bytes) => {
      request += bytes.toString("latin1");
      arrived += bytes.toString("latin1");
      // Each of the four requests ends differently; the proxy sends them one after the other.
      const number = Number(/ \/(\d) /.exec(request)?.[1]);
      const whole = [/hello world$/, /0\r\n\r\n$/, /\r\n\r\n$/, /\r\n\r\n$/][number - 1]?.test(request) === true && request.includes("\r\n\r\n");
      if (!whole) return;
      request = "";
      void writeCut((piece) => socket.write(piece, "latin1"), responses[number - 1] as string, cuts);
    });
  });
  const text = requests(`${port}-${sandbox.sandboxID}.localhost`).join("");
  const run = async (inCuts: readonly number[], outCuts: readonly number[]) => {
    cuts = outCuts;
    arrived = "";
    using client = fixture.dial();
    client.socket.setNoDelay(true);
    await writeCut(client.send, text, inCuts);
    return { received: await client.until((_, closed) => closed), arrived };
  };
  const whole = await run([], []);
  assert.equal(whole.received.match(/HTTP\/1\.1 \d/g)?.length, 5);
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(2000), { maxLength: 30 }), fc.array(fc.nat(2000), { maxLength: 20 }), async (inCuts, outCuts) => {
      assert.deepEqual(await run(inCuts, outCuts), whole);
    }),
    { numRuns: 60 },
  );
});

void test("one byte at a time gives the same answer", async () => {
  await using fixture = await openFixture();
  const text = "GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  using client = fixture.dial();
  client.socket.setNoDelay(true);
  await writeCut(
    client.send,
    text,
    Array.from(text, (_, place) => place),
  );
  assert.match(await client.until((_, closed) => closed), /^HTTP\/1\.1 200 OK[\s\S]*"who":"control"/);
});
