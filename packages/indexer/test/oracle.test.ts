// Compares the index with a plain dictionary: random sequences of events from publishers that share content, names, or neither, in several
// namespaces, with cleared blocks freed at any later time.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Packr } from "msgpackr";
import { type NativeIndex, type NativeQuery, openIndex, outcomes } from "../src/index/native.ts";
import { copyInto } from "./copies.ts";

const blockSize = 4;
const DEPTH = 6;
const CHAINS = 4;
const packr = new Packr({ useRecords: false });

/** Chains share their first two blocks; the tokens identify content, whatever its name is. */
function contentOf(chain: number, depth: number): number {
  return depth < 2 ? depth : 100 * (chain + 1) + depth;
}
function tokensOf(chain: number, depth: number): number[] {
  return Array.from({ length: blockSize }, (_, i) => contentOf(chain, depth) * 10 + i);
}
const hasher = openIndex(16 * 1024 * 1024, 1337n);
const chains = Array.from({ length: CHAINS }, (_, chain) =>
  hasher.sequences(Uint32Array.from(Array.from({ length: DEPTH }, (_, depth) => tokensOf(chain, depth)).flat()), blockSize),
);

/**
 * Publishers 0 and 1 use the same names, 2 and 3 each their own: 3's contradict those of 0 for other content. 4 uses the standard hashes.
 * Only the names of 0 and 1 depend on the salt.
 */
function nameOf(publisher: number, chain: number, depth: number, salt: string): bigint {
  if (publisher === 4) return chains[chain]?.[depth] as bigint;
  const content = BigInt(contentOf(chain, depth)) + (salt !== "" && publisher < 2 ? 50_000n : 0n);
  if (publisher === 3) return content < 100n ? 1001n - content : content % 2n === 0n ? content + 1n : content - 1n;
  return publisher === 2 ? 0xffffffffffff0000n + content : content + 1000n;
}

type Step =
  | { do: "store"; publisher: number; chain: number; from: number; count: number; medium: string | null; salt: string }
  | { do: "remove"; publisher: number; chain: number; depth: number; medium: string | null; salt: string }
  | { do: "clear"; publisher: number; medium: string | null; salt: string }
  | { do: "clear all"; publisher: number }
  | { do: "restart"; publisher: number }
  | { do: "reclaim"; most: number };

const PUBLISHERS = 5;
const publisher = fc.integer({ min: 0, max: PUBLISHERS - 1 });
const chain = fc.integer({ min: 0, max: CHAINS - 1 });
const depth = fc.integer({ min: 0, max: DEPTH - 1 });
const medium = fc.constantFrom(null, "GPU", "CPU_PINNED");
const salt = fc.constantFrom("", "", "s");
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant("store" as const), publisher, chain, from: depth, count: fc.integer({ min: 1, max: DEPTH }), medium, salt }),
  },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("remove" as const), publisher, chain, depth, medium, salt }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("clear" as const), publisher, medium, salt }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom("clear all" as const, "restart" as const), publisher }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("reclaim" as const), most: fc.integer({ min: 1, max: 200 }) }) },
);

class World {
  readonly index: NativeIndex = openIndex(64 * 1024 * 1024, 1337n);
  readonly ids: number[];
  /** The contents that each publisher has, by publisher, medium and salt. */
  readonly truth = new Map<string, Set<number>>();
  /** The contents that were stored since a publisher began, by publisher and salt: an engine stores a child only after its parent. */
  readonly stored = new Map<string, Set<number>>();
  #sequence = 0;
  readonly #counts = new Uint32Array(outcomes.length);

  constructor() {
    this.ids = Array.from({ length: PUBLISHERS }, (_, n) =>
      this.index.subscribe({ instance: `e${n}`, tenant: "default", model: "m", lora: "", salt: "", key: `e${n}`, blockSize, rank: 0, store: 0 }),
    );
  }

  set(publisher: number, medium: string | null, salt: string): Set<number> {
    return member(this.truth, `${publisher} ${medium === "CPU_PINNED" || medium === "CPU" ? "CPU" : "GPU"} ${salt}`);
  }

  send(publisher: number, event: unknown): void {
    const payload = packr.pack([1.5, [event], 0]);
    assert.equal(this.index.apply(this.ids[publisher] as number, this.#sequence++, payload, this.#counts, new Float64Array(1)), 1);
  }

  /** An event with a salt needs the envelope; others use the engines' own form. */
  event(type: "stored" | "removed" | "cleared", publisher: number, salt: string, medium: string | null, fields: object, engine: unknown[]): unknown {
    return salt === "" && publisher !== 4 && type !== "cleared" ? engine : { event_type: type, additional_salt: salt, medium, ...fields };
  }

  run(step: Step): void {
    if (step.do === "reclaim") {
      this.index.reclaim(step.most);
      return;
    }
    const { publisher } = step;
    if (step.do === "clear all" || step.do === "restart") {
      for (const medium of ["GPU", "CPU"]) for (const salt of ["", "s"]) this.set(publisher, medium, salt).clear();
      for (const salt of ["", "s"]) this.stored.delete(`${publisher} ${salt}`);
      if (step.do === "clear all") this.send(publisher, ["AllBlocksCleared"]);
      else this.index.clear(this.ids[publisher] as number);
      return;
    }
    const { medium, salt } = step;
    const held = this.set(publisher, medium, salt);
    if (step.do === "clear") {
      held.clear();
      // The contents that are still known as parents are those of the other medium.
      const other = this.set(publisher, medium === "CPU_PINNED" ? "GPU" : "CPU", salt);
      this.stored.set(`${publisher} ${salt}`, new Set(other));
      this.send(publisher, this.event("cleared", publisher, salt, medium, {}, []));
      return;
    }
    if (step.do === "remove") {
      const name = nameOf(publisher, step.chain, step.depth, salt);
      held.delete(contentOf(step.chain, step.depth));
      this.send(publisher, this.event("removed", publisher, salt, medium, { seq_hashes: [name] }, ["BlockRemoved", [name], medium]));
      return;
    }
    const stored = member(this.stored, `${publisher} ${salt}`);
    const from = step.from > 0 && !stored.has(contentOf(step.chain, step.from - 1)) ? 0 : step.from;
    const depths = Array.from({ length: Math.min(step.count, DEPTH - from) }, (_, i) => from + i);
    for (const depth of depths) {
      held.add(contentOf(step.chain, depth));
      stored.add(contentOf(step.chain, depth));
    }
    const names = depths.map((depth) => nameOf(publisher, step.chain, depth, salt));
    const parent = from === 0 ? null : nameOf(publisher, step.chain, from - 1, salt);
    const tokens = depths.flatMap((depth) => tokensOf(step.chain, depth));
    const fields = { seq_hashes: names, parent_hash: parent, token_ids: tokens };
    this.send(publisher, this.event("stored", publisher, salt, medium, fields, ["BlockStored", names, parent, tokens, blockSize, null, medium]));
  }

  check(): void {
    for (const salt of ["", "s"])
      for (let chain = 0; chain < CHAINS; chain++) {
        const tokens = Uint32Array.from(Array.from({ length: DEPTH }, (_, depth) => tokensOf(chain, depth)).flat());
        const query: NativeQuery = { tenant: "default", model: "m", lora: "", salt, blockSize, instance: "" };
        const answer = this.index.answer(query, tokens).toString();
        assert.equal(this.index.answer(query, chains[chain] as BigUint64Array).toString(), answer);
        const rows = JSON.parse(answer).default as Record<string, Record<string, unknown>>;
        for (let n = 0; n < PUBLISHERS; n++) {
          const prefix = (media: string[]) => {
            let blocks = 0;
            while (blocks < DEPTH && media.some((medium) => this.set(n, medium, salt).has(contentOf(chain, blocks)))) blocks++;
            return blocks * blockSize;
          };
          const both = prefix(["GPU", "CPU"]);
          const row = { longest_matched: both, GPU: prefix(["GPU"]), CPU: prefix(["CPU"]), DISK: 0, DP: { "0": both } };
          assert.deepEqual(rows[`e${n}`], row, `publisher ${n}, chain ${chain}, salt "${salt}"`);
        }
      }
  }
}

function member(sets: Map<string, Set<number>>, key: string): Set<number> {
  const known = sets.get(key) ?? new Set();
  sets.set(key, known);
  return known;
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

void test("an index that is loaded from a snapshot answers as before, and has the same digests", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), fc.array(step, { maxLength: 20 }), async (before, after) => {
      const world = new World();
      for (const one of before) world.run(one);
      const copy = openIndex(64 * 1024 * 1024, 1337n);
      assert.equal(await copyInto(copy, world.index, "a note"), "a note");
      assert.equal(copy.streams(), world.index.streams());
      assert.equal(await copy.tally(), await world.index.tally());
      const former = world.index;
      Object.assign(world, { index: copy });
      world.check();
      assert.notEqual(former, world.index);
      for (const one of after) {
        world.run(one);
        world.check();
      }
    }),
    { numRuns: 500 },
  );
});
