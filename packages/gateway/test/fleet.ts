// Simulates a fleet of nodes without processes: the gateway's own placement and admission over a day of creates, ends and deaths of nodes.
import { type Candidate, place, type Rules } from "../src/place/place.ts";
import { AdmissionQueue } from "../src/place/queue.ts";

export type FleetOptions = {
  readonly nodes: number;
  readonly sandboxes: number;
  readonly dayMs: number;
  readonly seed: number;
  /** The number of nodes that die during the day; each comes back after `outageMs` without its sandboxes. */
  readonly deaths: number;
  readonly outageMs: number;
  readonly maxSandboxes: number;
  readonly rules: Rules;
};

export type FleetReport = {
  readonly placed: number;
  readonly waited: number;
  readonly refused: number;
  readonly lost: number;
  readonly p50WaitMs: number;
  readonly p99WaitMs: number;
  /** The highest number of sandboxes on one node at any time. */
  readonly mostOnOne: number;
  readonly overcommitted: number;
};

const GIB = 2 ** 30;
const MEMORY_BYTES = GIB / 2;
const TOTAL_BYTES = 64 * GIB;
const MEAN_LIFE_MS = 10 * 60_000;
const QUEUE = { length: 10_000, waitMs: 30_000 };

type Node = { readonly candidate: Candidate & { running: number; isUp: boolean }; readonly held: Set<number> };
type Event = { readonly atMs: number; readonly run: () => void };

/** Runs one event after the other on a simulated clock. */
export async function runDay({ nodes: count, sandboxes, dayMs, seed, deaths, outageMs, maxSandboxes, rules }: FleetOptions): Promise<FleetReport> {
  const random = mulberry(seed);
  let nowMs = 0;
  const queue = new AdmissionQueue(QUEUE, () => nowMs);
  const fleet = Array.from({ length: count }, (_, index) => nodeOf(index, maxSandboxes));
  const byID = new Map(fleet.map((node) => [node.candidate.nodeID, node]));
  const candidates = fleet.map(({ candidate }) => candidate);
  const events = new Heap();
  const waits: number[] = [];
  const report = { placed: 0, waited: 0, refused: 0, lost: 0, mostOnOne: 0, overcommitted: 0 };

  function start(id: number, node: Node): void {
    node.held.add(id);
    node.candidate.running++;
    report.placed++;
    report.mostOnOne = Math.max(report.mostOnOne, node.candidate.running);
    if (node.candidate.running > maxSandboxes || node.candidate.memory.reservedBytes > TOTAL_BYTES * rules.memoryOvercommit) report.overcommitted++;
    events.push({
      atMs: nowMs - Math.log(1 - random()) * MEAN_LIFE_MS,
      run() {
        if (!node.held.delete(id)) return;
        node.candidate.running--;
        queue.release(1);
      },
    });
  }

  async function create(id: number): Promise<void> {
    const sinceMs = nowMs;
    for (let wasQueued = false; ; wasQueued = true) {
      const chosen = byID.get(place(candidates, { templateID: "base" }, rules).candidates[0]?.nodeID ?? "");
      if (chosen !== undefined) {
        if (wasQueued) {
          report.waited++;
          queue.admitted();
        }
        waits.push(nowMs - sinceMs);
        return start(id, chosen);
      }
      if ((!wasQueued && queue.isFull) || !(await queue.wait(sinceMs))) {
        report.refused++;
        return;
      }
    }
  }

  for (let id = 0; id < sandboxes; id++) events.push({ atMs: burstyMoment(random, dayMs), run: () => void create(id) });
  for (let death = 0; death < deaths; death++) {
    const node = fleet[Math.floor(random() * count)] as Node;
    const atMs = random() * dayMs;
    events.push({
      atMs,
      run() {
        node.candidate.isUp = false;
        report.lost += node.held.size;
        node.held.clear();
        node.candidate.running = 0;
      },
    });
    events.push({
      atMs: atMs + outageMs,
      run() {
        node.candidate.isUp = true;
        queue.release(maxSandboxes);
      },
    });
  }
  for (let atMs = 0; atMs < dayMs + QUEUE.waitMs * 2; atMs += 250) events.push({ atMs, run: () => queue.expire() });

  for (let event = events.pop(); event !== undefined; event = events.pop()) {
    nowMs = event.atMs;
    event.run();
    // Creates that the queue released try again at the same simulated time.
    for (let turn = 0; turn < 3; turn++) await null;
  }
  waits.sort((a, b) => a - b);
  return { ...report, p50WaitMs: waits[Math.floor(waits.length * 0.5)] ?? 0, p99WaitMs: waits[Math.floor(waits.length * 0.99)] ?? 0 };
}

function nodeOf(index: number, maxSandboxes: number): Node {
  const template = { memoryBytes: MEMORY_BYTES, ready: 0 };
  const candidate = {
    nodeID: `node-${String(index).padStart(5, "0")}`,
    isUp: true,
    isDraining: false,
    cpuClass: "x86-64-v3",
    labels: {},
    maxSandboxes,
    running: 0,
    starting: 0,
    underWay: 0,
    isFull: false,
    get memory() {
      return {
        totalBytes: TOTAL_BYTES,
        availableBytes: TOTAL_BYTES - candidate.running * MEMORY_BYTES * 0.25,
        reservedBytes: candidate.running * MEMORY_BYTES,
      };
    },
    template: () => template,
  };
  return { candidate, held: new Set() };
}

/** Half of the day's creates come evenly, half in forty bursts of a few seconds. */
function burstyMoment(random: () => number, dayMs: number): number {
  if (random() < 0.5) return random() * dayMs;
  const burst = Math.floor(random() * 40);
  return ((burst + 0.5) / 40) * dayMs + random() * 5_000;
}

/** A small random generator (mulberry32) that gives the same numbers for the same seed. */
export function mulberry(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A queue of events by time; events of the same time keep their order of insertion. */
export class Heap {
  readonly #events: (Event & { readonly order: number })[] = [];
  #order = 0;

  push(event: Event): void {
    const events = this.#events;
    events.push({ atMs: event.atMs, run: event.run, order: this.#order++ });
    for (let at = events.length - 1; at > 0; ) {
      const parent = (at - 1) >> 1;
      if (!this.#isBefore(at, parent)) return;
      this.#swap(at, parent);
      at = parent;
    }
  }

  pop(): Event | undefined {
    const events = this.#events;
    const first = events[0];
    const last = events.pop();
    if (first === undefined || last === undefined || events.length === 0) return first;
    events[0] = last;
    for (let at = 0; ; ) {
      const left = at * 2 + 1;
      const next = left + 1 < events.length && this.#isBefore(left + 1, left) ? left + 1 : left;
      if (next >= events.length || !this.#isBefore(next, at)) return first;
      this.#swap(at, next);
      at = next;
    }
  }

  #isBefore(a: number, b: number): boolean {
    const [one, other] = [this.#events[a], this.#events[b]];
    if (one === undefined || other === undefined) return false;
    return one.atMs < other.atMs || (one.atMs === other.atMs && one.order < other.order);
  }

  #swap(a: number, b: number): void {
    const events = this.#events;
    const one = events[a];
    const other = events[b];
    if (one === undefined || other === undefined) return;
    events[a] = other;
    events[b] = one;
  }
}
