// Detach keys, and how tables show times and sizes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { byteSize, duration } from "@svc/contract/table.ts";
import { UsageError } from "../src/output/complain.ts";
import { detachByteOf } from "../src/sandbox/terminal.ts";

void test("a detach key is ctrl- with a letter or a symbol, or none", () => {
  assert.equal(detachByteOf("ctrl-]"), 0x1d);
  assert.equal(detachByteOf("ctrl-a"), 1);
  assert.equal(detachByteOf("^Z"), 26);
  assert.equal(detachByteOf("none"), undefined);
  for (const wrong of ["", "a", "ctrl-", "ctrl-1", "alt-x", "ctrl-ab"]) assert.throws(() => detachByteOf(wrong), UsageError, wrong);
});

void test("times are shown in their two largest units", () => {
  const shown = [0, 499, 59_400, 60_000, 245_000, 3_600_000, 10_920_000, 439_200_000, -5].map((ms) => duration(ms));
  assert.deepEqual(shown, ["0 s", "0 s", "59 s", "1 min", "4 min 5 s", "1 h", "3 h 2 min", "5 d 2 h", "0 s"]);
});

void test("sizes are shown in binary units", () => {
  assert.deepEqual([0, 1023, 1024, 1_572_864, 2 ** 40 * 3].map(byteSize), ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "3.0 TiB"]);
});
