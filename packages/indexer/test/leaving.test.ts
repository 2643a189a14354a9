// Tests how much memory an index frees when a publisher with very many blocks leaves, by the index's own count of bytes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Packr } from "msgpackr";
import { metricsOf, type NativeIndex, type NativeQuery, openIndex, outcomes } from "../src/index/native.ts";

const packr = new Packr({ useRecords: false });
const counts = new Uint32Array(outcomes.length);
const blockSize = 1;
const CHAIN = 64;
const LARGE_CHAINS = 15_000;
const SMALL_CHAINS = 300;
const query: NativeQuery = { tenant: "default", model: "m", lora: "", salt: "", blockSize, instance: "" };
/** The bound of the loops below, in steps of 4,096 blocks. */
const MOST_STEPS = 2000;
let sequence = 0;

class Publisher {
  readonly id: number;
  readonly #index: NativeIndex;
  readonly #instance: string;
  readonly #chains: number;
  readonly #first: number;

  constructor(index: NativeIndex, instance: string, chains: number, first: number) {
    this.#index = index;
    this.#instance = instance;
    this.#chains = chains;
    this.#first = first;
    this.id = index.subscribe({ instance, tenant: "default", model: "m", lora: "", salt: "", key: instance, blockSize, rank: 0, store: 0 });
  }
  #tokens(chain: number): number[] {
    return Array.from({ length: CHAIN }, (_, depth) => (this.#first + chain) * CHAIN + depth);
  }
  #names(chain: number): bigint[] {
    return this.#tokens(chain).map((token) => BigInt.asUintN(64, BigInt(token + 1) * 0x9e3779b97f4a7c15n));
  }
  #send(event: unknown[]): void {
    assert.equal(this.#index.apply(this.id, sequence++, packr.pack([1.5, [event], 0]), counts, new Float64Array(1)), 1);
  }
  storeAll(): void {
    for (let chain = 0; chain < this.#chains; chain++) this.#send(["BlockStored", this.#names(chain), null, this.#tokens(chain), blockSize, null, "GPU"]);
  }
  removeAll(): void {
    for (let chain = 0; chain < this.#chains; chain++) this.#send(["BlockRemoved", this.#names(chain), "GPU"]);
  }
  clear(): void {
    this.#send(["AllBlocksCleared"]);
  }
  /** Counts the blocks of all its chains that are found. */
  found(): number {
    let sum = 0;
    for (let chain = 0; chain < this.#chains; chain++) {
      const answer = JSON.parse(this.#index.answer(query, Uint32Array.from(this.#tokens(chain))).toString()) as Record<string, Record<string, { GPU: number }>>;
      sum += answer["default"]?.[this.#instance]?.GPU ?? 0;
    }
    return sum;
  }
}

const bytesOf = (index: NativeIndex): number => metricsOf(index).indexBytes + metricsOf(index).nameBytes;
function reclaimAll(index: NativeIndex): number {
  let steps = 1;
  while (index.reclaim(1 << 12) === 1) assert.ok(++steps < MOST_STEPS);
  return steps;
}

const ways: readonly { name: string; leave: (index: NativeIndex, publisher: Publisher) => void }[] = [
  { name: "is cleared", leave: (_, publisher) => publisher.clear() },
  { name: "is unregistered", leave: (index, publisher) => index.unsubscribe(publisher.id) },
  { name: "removes its blocks one event after another", leave: (_, publisher) => publisher.removeAll() },
];
for (const { name, leave } of ways)
  void test(`the index frees its tables' memory when a publisher of a million blocks ${name}`, () => {
    const index = openIndex(256 * 1024 * 1024, 1337n);
    const small = new Publisher(index, "small", SMALL_CHAINS, 0);
    small.storeAll();
    const before = bytesOf(index);
    const large = new Publisher(index, "large", LARGE_CHAINS, SMALL_CHAINS);
    large.storeAll();
    const most = bytesOf(index);
    assert.equal(metricsOf(index).blocks, (SMALL_CHAINS + LARGE_CHAINS) * CHAIN);
    assert.ok(most > 20 * before, `${most} after ${before}`);

    leave(index, large);
    // The work takes several steps: no step does all of it.
    if (name !== ways[2]?.name) assert.ok(reclaimAll(index) > (LARGE_CHAINS * CHAIN) / 2 ** 13);
    else reclaimAll(index);
    const { blocks, indexBytes, nameBytes } = metricsOf(index);
    // Blocks that were removed one by one may still be parents, so some of them are kept.
    const kept = name === ways[2]?.name ? 2 ** 16 + 64 : 0;
    assert.ok(blocks <= SMALL_CHAINS * CHAIN + kept, String(blocks));
    // A block has 12 bytes and a name 8; two tables of four bytes a slot are at least a quarter full, except the smallest ones.
    assert.ok(indexBytes + nameBytes <= blocks * (20 + 2 * 4 * 4.1) + 2 * 200_000, `${indexBytes} and ${nameBytes} for ${blocks}`);
    assert.ok(indexBytes + nameBytes < most / 4, `${indexBytes} and ${nameBytes} of ${most}`);
    assert.equal(small.found(), SMALL_CHAINS * CHAIN);

    // The same index grows again.
    const again = new Publisher(index, "again", LARGE_CHAINS / 10, SMALL_CHAINS + 100_000);
    again.storeAll();
    assert.equal(again.found(), (LARGE_CHAINS / 10) * CHAIN);
    assert.equal(small.found(), SMALL_CHAINS * CHAIN);
  });
