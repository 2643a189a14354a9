// The output of a sandbox's commands has a rate limit; its files, its applications and its neighbours have none.
import assert from "node:assert/strict";
import { request } from "node:http";
import { test } from "node:test";
import { ENVD_PORT } from "@svc/contract/envd-http.ts";
import { Pace } from "@svc/kit/proxy/pace.ts";
import { type Fixture, openFixture } from "./proxy-fixture.ts";

const MB = 1_000_000;
const START = "/process.Process/Start";

/** Starts an envd that answers every request with this number of bytes, as fast as the reader takes them. */
async function talkative(fixture: Fixture, sizeBytes: number) {
  const sandbox = fixture.sandbox({ secure: false });
  const chunk = Buffer.alloc(64 * 1024, "x");
  const written = { output: 0 };
  await fixture.serve(sandbox.host, ENVD_PORT, async (incoming, response) => {
    incoming.resume();
    for (let left = sizeBytes; left > 0 && !response.destroyed; left -= chunk.length) {
      if (incoming.url === START) written.output += Math.min(left, chunk.length);
      if (!response.write(chunk.subarray(0, left))) await new Promise<void>((resolve) => response.once("drain", resolve).once("close", resolve));
    }
    response.end();
  });
  /** Reads an answer to its end, or until `signal` aborts it. */
  const read = (path: string, signal?: AbortSignal) =>
    new Promise<number>((resolve) => {
      let got = 0;
      const headers = { "x-svc-sandbox-id": sandbox.sandboxID, "x-svc-target-port": String(ENVD_PORT) };
      const outgoing = request(
        { port: fixture.port, path: `/proxy${path}`, method: "POST", headers, ...(signal === undefined ? {} : { signal }) },
        (response) => {
          response.on("data", (data: Buffer) => (got += data.length)).once("close", () => resolve(got));
        },
      );
      outgoing.on("error", () => resolve(got)).end();
    });
  return { read, written };
}

void test("a command that writes endlessly waits, while files of the same sandbox pass at full speed", async () => {
  // At this rate 100 MB would take a quarter of an hour.
  await using fixture = await openFixture({ outputBytesPerSecond: MB / 10 });
  const { read, written } = await talkative(fixture, 100 * MB);
  const ends = new AbortController();
  const output = [read(START, ends.signal), read(START, ends.signal)];
  assert.equal(await read("/files?path=big"), 100 * MB);
  assert.ok(written.output < 50 * MB, `${written.output} bytes of output were taken meanwhile`);
  ends.abort();
  await Promise.all(output);
});

void test("output beyond the rate is delayed but not lost", async () => {
  await using fixture = await openFixture({ outputBytesPerSecond: MB });
  const { read } = await talkative(fixture, 3 * MB);
  assert.deepEqual(await Promise.all([read(START), read(START)]), [3 * MB, 3 * MB]);
});

void test("without a bound output is not delayed", async () => {
  await using fixture = await openFixture({ outputBytesPerSecond: 0 });
  const { read } = await talkative(fixture, 50 * MB);
  assert.equal(await read(START), 50 * MB);
});

void test("a pace passes a burst of four seconds at once, then the rate", () => {
  const pace = new Pace(1000, 0);
  assert.equal(pace.take(4000, 0), 0);
  assert.equal(pace.take(500, 0), 500);
  assert.equal(pace.take(0, 500), 0);
  assert.equal(pace.take(4000, 100_000), 0, "idle time is saved up to the burst alone");
  assert.equal(pace.take(1000, 100_000), 1000);
});
