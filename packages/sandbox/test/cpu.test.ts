// The processors on which a checkpoint's memory can be restored.
import assert from "node:assert/strict";
import { test } from "node:test";
import { missingHere, processorOf, thisProcessor } from "../src/runtime/cpu.ts";

const flags = (...names: string[]) => processorOf(`processor\t: 0\nflags\t\t: ${names.join(" ")}\n`, "x64");

void test("memory is restored where the processor has every feature of the old one, and refused with the names of the missing features", () => {
  const narrow = flags("sse2", "avx", "avx2");
  const wide = flags("avx2", "avx", "sse2", "avx512f", "amx_tile");
  assert.equal(missingHere(narrow, wide), undefined);
  assert.equal(missingHere(wide, narrow), "this machine's processor lacks amx_tile, avx512f");
  assert.match(missingHere(narrow, processorOf("Features\t: fp asimd", "arm64")) ?? "", /taken on x64, and this machine is arm64/);
  assert.equal(missingHere(thisProcessor(), thisProcessor()), undefined);
});

void test("flags that only the kernel uses do not count, since another kernel may name them differently", () => {
  assert.equal(missingHere(flags("sse2", "ibrs", "cqm_llc", "constant_tsc"), flags("sse2")), undefined);
});
