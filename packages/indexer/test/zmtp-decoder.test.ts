// Tests that bytes become messages, however they are divided, and whatever they are.
import assert from "node:assert/strict";
import { test } from "node:test";
import { COMMAND_FOUND, Decoder, MESSAGE, NOTHING } from "../src/zmtp/decoder.ts";
import { bytesOf, longHead, shortFrame } from "./raw-zmtp.ts";
import { seeded } from "./stream-publisher.ts";

const MAX_BYTES = 1 << 20;
const SEED = Number(process.env["SVC_ZMTP_SEED"] ?? Math.floor(Math.random() * 1e9));

type Unit = { readonly command: boolean; readonly frames: readonly Buffer[] };

function encoded({ command, frames }: Unit, alwaysLong: boolean): Buffer {
  return Buffer.concat(
    frames.map((body, at) => {
      const flags = command ? 4 : at + 1 < frames.length ? 1 : 0;
      return body.length > 255 || alwaysLong ? bytesOf(longHead(flags, BigInt(body.length)), body) : shortFrame(flags, body);
    }),
  );
}

/** Decodes these pieces, each in the same memory, which is overwritten afterwards; `most` units at a time before the rest is copied. */
function decoded(pieces: readonly Buffer[], most = Number.POSITIVE_INFINITY): Unit[] {
  const decoder = new Decoder(MAX_BYTES);
  const shared = Buffer.alloc(Math.max(...pieces.map(({ length }) => length)));
  const units: Unit[] = [];
  for (const piece of pieces) {
    piece.copy(shared);
    decoder.feed(shared, piece.length);
    while (!decoder.isEmpty) {
      for (let taken = 0; taken < most; taken++) {
        const found = decoder.front();
        if (found === NOTHING) break;
        units.push({ command: found === COMMAND_FOUND, frames: decoder.frames.map((frame) => Buffer.from(frame)) });
        decoder.shift();
      }
      // The unit in front must stay in front when the memory is reused.
      decoder.front();
      decoder.stow();
      shared.fill(0xaa);
    }
    assert.equal(decoder.problem, "");
  }
  return units;
}

const pieces = (bytes: Buffer, cuts: readonly number[]): Buffer[] =>
  [0, ...cuts].map((from, at) => bytes.subarray(from, cuts[at] ?? bytes.length)).filter(({ length }) => length > 0);

const some: Unit[] = [
  { command: false, frames: [Buffer.alloc(0), Buffer.alloc(8, 7), Buffer.from("payload")] },
  { command: true, frames: [Buffer.from("\x04PING\0\0")] },
  { command: false, frames: [Buffer.alloc(0)] },
  { command: false, frames: [Buffer.from("topic"), Buffer.alloc(8, 1), Buffer.alloc(300, 3)] },
];

void test("messages and commands are the same wherever they are divided, at one position or at two", () => {
  for (const alwaysLong of [false, true]) {
    const bytes = Buffer.concat(some.map((unit) => encoded(unit, alwaysLong)));
    assert.deepEqual(decoded([bytes]), some);
    assert.deepEqual(decoded([...bytes].map((byte) => Buffer.of(byte))), some);
    for (let first = 1; first < bytes.length; first++) {
      assert.deepEqual(decoded(pieces(bytes, [first])), some, `cut at ${first}`);
      assert.deepEqual(decoded(pieces(bytes, [first]), 1), some, `cut at ${first}, one at a time`);
      for (let second = first + 1; second < bytes.length; second += 7) assert.deepEqual(decoded(pieces(bytes, [first, second])), some);
    }
  }
});

void test(`random messages divided at random come complete and in order (seed ${SEED})`, () => {
  const below = seeded(SEED);
  for (let round = 0; round < 300; round++) {
    const units = Array.from({ length: 1 + below(12) }, (): Unit => {
      if (below(5) === 0) return { command: true, frames: [Buffer.alloc(below(300), below(256))] };
      return { command: false, frames: Array.from({ length: 1 + below(8) }, () => Buffer.alloc(below(3) === 0 ? below(20_000) : below(20), below(256))) };
    });
    const bytes = Buffer.concat(units.map((unit) => encoded(unit, below(2) === 0)));
    const cuts = Array.from({ length: below(20) }, () => below(bytes.length)).sort((a, b) => a - b);
    assert.deepEqual(decoded(pieces(bytes, cuts), 1 + below(4)), units, `round ${round} of seed ${SEED}`);
  }
});

void test(`for any input, a decoder ends in a problem or waits for more, and keeps no more than it was given (seed ${SEED})`, () => {
  const below = seeded(SEED);
  let problems = 0;
  for (let round = 0; round < 3000; round++) {
    const decoder = new Decoder(4096);
    let fed = 0;
    while (decoder.problem === "" && fed < 20_000) {
      // Mostly small numbers make valid flags and lengths likely.
      const bytes = Buffer.from(Array.from({ length: 1 + below(40) }, () => (below(3) > 0 ? below(8) : below(256))));
      decoder.feed(bytes, bytes.length);
      fed += bytes.length;
      for (let found = decoder.front(); found !== NOTHING; found = decoder.front()) {
        const size = decoder.frames.reduce((sum, { length }) => sum + length, 0);
        assert.ok(size <= fed && size <= 4096 && decoder.frames.length <= 8, `round ${round} of seed ${SEED}`);
        assert.ok(found === MESSAGE || decoder.frames.length === 1);
        decoder.shift();
      }
      assert.ok(decoder.problem !== "" || decoder.isEmpty);
      assert.ok(decoder.wantedBytes <= 4096 + 9);
    }
    if (decoder.problem !== "") problems++;
  }
  assert.ok(problems > 1000, `${problems} of seed ${SEED}`);
});

void test("frames that ZMTP does not have, too many of them, and lengths above the maximum are refused by their heads", () => {
  const refused: [Buffer, RegExp][] = [
    [bytesOf(8, 0), /a frame that ZMTP does not have/],
    [bytesOf(0x80, 1, 1), /a frame that ZMTP does not have/],
    [bytesOf(5, 1, 1), /a frame that ZMTP does not have/],
    [bytesOf(1, 0, 4, 1, 1), /a frame that ZMTP does not have/],
    [Buffer.concat(Array.from({ length: 9 }, () => bytesOf(1, 0))), /more than 8 frames/],
    [longHead(0, BigInt(MAX_BYTES)), /a message of 1048585 bytes or more; the maximum is 1048576/],
    [longHead(0, 2n ** 63n), /a message of/],
    [longHead(1, 2n ** 64n - 1n), /a message of/],
    [longHead(4, 5000n), /a command of 5009 bytes or more; the maximum is 4096/],
    [bytesOf(longHead(1, 600_000n), Buffer.alloc(600_000), longHead(0, 600_000n)), /a message of 1200018 bytes or more/],
  ];
  for (const [bytes, problem] of refused) {
    const decoder = new Decoder(MAX_BYTES);
    for (const byte of bytes.length > 100 ? [bytes] : [...bytes].map((each) => Buffer.of(each))) {
      decoder.feed(byte, byte.length);
      assert.equal(decoder.front(), NOTHING);
    }
    assert.match(decoder.problem, problem);
  }
});
