// Estimates the offset between clocks from answers whose date has whole seconds.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import fc from "fast-check";
import { type Apart, apartBy, askClock, narrowed, skewOf } from "../src/cluster/clock-skew.ts";

const header = (atMs: number) => new Date(atMs).toUTCString();

void test("a clock's offset lies within the bounds of each answer, and several answers narrow it down", () => {
  const asks = fc.array(
    fc.record({ at: fc.integer({ min: 0, max: 60_000 }), takes: fc.integer({ min: 0, max: 400 }), said: fc.double({ min: 0, max: 1, noNaN: true }) }),
    { minLength: 1 },
  );
  fc.assert(
    fc.property(asks, fc.integer({ min: -4_000_000, max: 4_000_000 }), (rounds, skewMs) => {
      let apart: Apart | undefined;
      for (const { at, takes, said } of rounds) {
        const sentMs = 1_700_000_000_000 + at;
        const theirs = Math.floor(sentMs + takes * said) - skewMs;
        const found = apartBy({ sentMs, answeredMs: sentMs + takes, date: header(theirs) });
        assert.ok(found !== undefined && found.low < skewMs && skewMs <= found.high, JSON.stringify(found));
        apart = narrowed(apart, found);
      }
      assert.ok(apart !== undefined && apart.low < skewMs && skewMs <= apart.high, JSON.stringify(apart));
      assert.ok(apart.high - apart.low <= 1_400);
    }),
  );
});

void test("the median clock counts, so that one wrong clock does not affect the others", () => {
  const at = (ms: number): Apart => ({ low: ms - 10, high: ms + 10 });
  assert.equal(skewOf([]), undefined);
  assert.equal(skewOf([at(3)]), 3);
  assert.equal(skewOf([at(0), at(3_600_000), at(5)]), 5);
  assert.equal(skewOf([at(3_600_000), at(4)]), 4);
  assert.equal(skewOf([at(3_600_000), at(3_600_001), at(2)]), 3_600_000);
});

void test("a server's clock is read from its answers; one without an answer or a date is ignored", async () => {
  const server = createServer((_request, response) => {
    response.sendDate = false;
    response.setHeader("date", header(Date.now() - 10_000));
    response.end("ok");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const fine = ({ low, high }: Apart) => high - low <= 300;
  const apart = (await askClock(`http://127.0.0.1:${port}/`, Date.now, 60, fine)) ?? assert.fail("no answer");
  assert.ok(apart.low <= 10_000 && apart.high >= 10_000, JSON.stringify(apart));
  server.close();
  server.closeAllConnections();
  await once(server, "close");
  assert.equal(await askClock(`http://127.0.0.1:${port}/`, Date.now, 3, fine), undefined);
  assert.equal(apartBy({ sentMs: 0, answeredMs: 1, date: "" }), undefined);
});
