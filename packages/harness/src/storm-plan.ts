// The plan of a storm's round, derived only from its seed and number, so that any round can be repeated.

export type Target = "node" | "spawn helper" | "runsc" | "sandbox" | "envd" | "gofer";
export type Kind = "create" | "pause" | "resume" | "fork" | "snapshot" | "build" | "delete";
export type RoundPlan = {
  readonly target: Target;
  /** The delay after the first operation began. */
  readonly killAfterMs: number;
  readonly operations: readonly { readonly wanted: Kind; readonly afterMs: number }[];
  /** Chooses among the objects that exist by then. */
  readonly random: () => number;
};

const targets: readonly Target[] = ["node", "spawn helper", "runsc", "sandbox", "envd", "gofer"];
/** Drawn like cards from a deck, so that every kind gets its share whatever the seed. */
const deck: readonly Kind[] = ["create", "pause", "pause", "resume", "resume", "fork", "fork", "snapshot", "snapshot", "build", "build", "delete"];
const OPERATIONS = 3;
const MAX_STAGGER_MS = 300;
const MAX_KILL_AFTER_MS = 1500;

export function planOf(seed: number, round: number): RoundPlan {
  const random = generator(Math.imul(seed, 0x9e3779b1) ^ Math.imul(round + 1, 0x85ebca6b));
  const killAfterMs = Math.floor(random() * MAX_KILL_AFTER_MS);
  const operations = Array.from({ length: OPERATIONS }, (_, index) => ({
    wanted: cardAt(seed, round * OPERATIONS + index),
    afterMs: Math.floor(random() * MAX_STAGGER_MS),
  }));
  return { target: pick(targets, random), killAfterMs, operations, random };
}

/** The deck is shuffled again for each deal. */
function cardAt(seed: number, position: number): Kind {
  const random = generator(Math.imul(seed, 0xc2b2ae35) ^ Math.floor(position / deck.length));
  const cards = deck.map((kind) => ({ kind, order: random() })).sort((a, b) => a.order - b.order);
  return (cards[position % deck.length] as (typeof cards)[number]).kind;
}

export function pick<T>(from: readonly T[], random: () => number): T {
  return from[Math.floor(random() * from.length)] as T;
}

/** Returns numbers from 0 to 1 (mulberry32); the sequence is the same on every machine. */
export function generator(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000;
  };
}
