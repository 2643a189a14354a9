// Which processor a checkpoint's memory may go on upon.
import assert from "node:assert/strict";
import { test } from "node:test";
import { missingHere, processorOf, thisProcessor } from "../src/runtime/cpu.ts";

const flags = (...names: string[]) => processorOf(`processor\t: 0\nflags\t\t: ${names.join(" ")}\n`, "x64");

void test("memory goes on where the processor has all that programs may have found, and is refused by the name of what is missing", () => {
  const narrow = flags("sse2", "avx", "avx2");
  const wide = flags("avx2", "avx", "sse2", "avx512f", "amx_tile");
  assert.equal(missingHere(narrow, wide), undefined);
  assert.equal(missingHere(wide, narrow), "this machine's processor lacks amx_tile, avx512f");
  assert.match(missingHere(narrow, processorOf("Features\t: fp asimd", "arm64")) ?? "", /taken on x64, and this machine is arm64/);
  assert.equal(missingHere(thisProcessor(), thisProcessor()), undefined);
});

void test("what only the kernel decides by does not count: a new kernel may spell it otherwise", () => {
  assert.equal(missingHere(flags("sse2", "ibrs", "cqm_llc", "constant_tsc"), flags("sse2")), undefined);
});
