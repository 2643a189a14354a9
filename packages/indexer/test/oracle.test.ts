// The index against a plain dictionary: random sequences of events from publishers that share content, names, or neither.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Packr } from "msgpackr";
import { type NativeIndex, type NativeQuery, openIndex, outcomes } from "../src/native.ts";

const blockSize = 4;
const DEPTH = 6;
const CHAINS = 4;
const packr = new Packr({ useRecords: false });

/** Chains share their first two blocks; tokens tell content apart, whatever it is called. */
function contentOf(chain: number, depth: number): number {
  return depth < 2 ? depth : 100 * (chain + 1) + depth;
}
function tokensOf(chain: number, depth: number): number[] {
  return Array.from({ length: blockSize }, (_, i) => contentOf(chain, depth) * 10 + i);
}
/** Publishers 0 and 1 use the same names, 2 and 3 each their own: 3's contradict those of 0 for other content. */
function nameOf(publisher: number, chain: number, depth: number): bigint {
  const content = BigInt(contentOf(chain, depth));
  if (publisher === 3) return content < 100n ? 1001n - content : content % 2n === 0n ? content + 1n : content - 1n;
  return publisher === 2 ? 0xffffffffffff0000n + content : content + 1000n;
}

type Step =
  | { do: "store"; publisher: number; chain: number; from: number; count: number; medium: string | null }
  | { do: "remove"; publisher: number; chain: number; depth: number; medium: string | null }
  | { do: "clear" | "restart"; publisher: number };

const publisher = fc.integer({ min: 0, max: 3 });
const chain = fc.integer({ min: 0, max: CHAINS - 1 });
const depth = fc.integer({ min: 0, max: DEPTH - 1 });
const medium = fc.constantFrom(null, "GPU", "CPU_PINNED");
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant("store" as const), publisher, chain, from: depth, count: fc.integer({ min: 1, max: DEPTH }), medium }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("remove" as const), publisher, chain, depth, medium }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom("clear" as const, "restart" as const), publisher }) },
);

class World {
  readonly index: NativeIndex = openIndex(64 * 1024 * 1024, 1337n);
  readonly ids: number[];
  /** By publisher and medium: the contents it says it has. */
  readonly truth = new Map<string, Set<number>>();
  /** Contents a publisher has told of since it began: an engine stores a child after its parent only. */
  readonly told = new Map<number, Set<number>>();
  #sequence = 0;
  readonly #counts = new Uint32Array(outcomes.length);

  constructor() {
    this.ids = [0, 1, 2, 3].map((n) =>
      this.index.subscribe({ instance: `e${n}`, tenant: "default", model: "m", lora: "", salt: "", key: `e${n}`, blockSize, rank: 0, store: 0 }),
    );
  }

  set(publisher: number, medium: string): Set<number> {
    const key = `${publisher} ${medium}`;
    const known = this.truth.get(key) ?? new Set();
    this.truth.set(key, known);
    return known;
  }

  send(publisher: number, event: unknown): void {
    const payload = packr.pack([1.5, [event], 0]);
    assert.equal(this.index.apply(this.ids[publisher] as number, this.#sequence++, payload, this.#counts, new Float64Array(2)), 1);
  }

  run(step: Step): void {
    if (!("chain" in step)) {
      for (const medium of ["GPU", "CPU"]) this.set(step.publisher, medium).clear();
      this.told.delete(step.publisher);
      if (step.do === "clear") this.send(step.publisher, ["AllBlocksCleared"]);
      else this.index.clear(this.ids[step.publisher] as number, true);
      return;
    }
    const held = this.set(step.publisher, step.medium === "CPU_PINNED" ? "CPU" : "GPU");
    if (step.do === "remove") {
      held.delete(contentOf(step.chain, step.depth));
      this.send(step.publisher, ["BlockRemoved", [nameOf(step.publisher, step.chain, step.depth)], step.medium]);
      return;
    }
    const told = this.told.get(step.publisher) ?? new Set();
    this.told.set(step.publisher, told);
    const from = step.from > 0 && !told.has(contentOf(step.chain, step.from - 1)) ? 0 : step.from;
    const depths = Array.from({ length: Math.min(step.count, DEPTH - from) }, (_, i) => from + i);
    for (const depth of depths) {
      held.add(contentOf(step.chain, depth));
      told.add(contentOf(step.chain, depth));
    }
    const names = depths.map((depth) => nameOf(step.publisher, step.chain, depth));
    const parent = from === 0 ? null : nameOf(step.publisher, step.chain, from - 1);
    this.send(step.publisher, ["BlockStored", names, parent, depths.flatMap((depth) => tokensOf(step.chain, depth)), blockSize, null, step.medium]);
  }

  check(): void {
    for (let chain = 0; chain < CHAINS; chain++) {
      const tokens = Uint32Array.from(Array.from({ length: DEPTH }, (_, depth) => tokensOf(chain, depth)).flat());
      const query: NativeQuery = { tenant: "default", model: "m", lora: "", salt: "", blockSize, instance: "" };
      const rows = JSON.parse(this.index.answer(query, tokens).toString()).default as Record<string, Record<string, unknown>>;
      for (let n = 0; n < 4; n++) {
        const prefix = (media: string[]) => {
          let blocks = 0;
          while (blocks < DEPTH && media.some((medium) => this.set(n, medium).has(contentOf(chain, blocks)))) blocks++;
          return blocks * blockSize;
        };
        const both = prefix(["GPU", "CPU"]);
        assert.deepEqual(
          rows[`e${n}`],
          { longest_matched: both, GPU: prefix(["GPU"]), CPU: prefix(["CPU"]), DISK: 0, DP: { "0": both } },
          `publisher ${n}, chain ${chain}`,
        );
      }
    }
  }
}

void test("after any sequence of events every answer equals a plain dictionary's", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const world = new World();
      for (const one of steps) {
        world.run(one);
        world.check();
      }
    }),
    { numRuns: 3000 },
  );
});

void test("a snapshot read back answers as before, and has the same digests", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), fc.array(step, { maxLength: 20 }), (before, after) => {
      const world = new World();
      for (const one of before) world.run(one);
      const copy = openIndex(64 * 1024 * 1024, 1337n);
      assert.equal(copy.load(world.index.save("a note")), "a note");
      assert.equal(copy.streams(), world.index.streams());
      const former = world.index;
      Object.assign(world, { index: copy });
      world.check();
      for (const one of after) world.run(one);
      assert.notEqual(former, world.index);
      // What was parked is not in a snapshot: a child that waited may be missing, but nothing is there that should not be.
    }),
    { numRuns: 500 },
  );
});
