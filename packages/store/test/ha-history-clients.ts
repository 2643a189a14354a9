// Clients that write, read and remove a few keys at whichever master answers, and record the answers.
import { setTimeout as sleep } from "node:timers/promises";
import type { RpcClient } from "../src/rpc/client.ts";
import { plain } from "./calls.ts";
import type { HaNode } from "./ha-cluster.ts";
import type { Step } from "./linearizable.ts";

const NOT_FOUND = -704;
const idOf = (client: number) => `00000000-0000-0002-0000-${client.toString(16).padStart(12, "0")}`;

/** A pseudo-random generator that is determined by its seed. */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

export class Histories {
  readonly byKey = new Map<string, Step[]>();
  /** The nodes that answered puts. */
  readonly answeredBy = new Set<string>();
  #clock = 0;
  #value = 0n;

  now(): number {
    return ++this.#clock;
  }
  nextValue(): bigint {
    return ++this.#value;
  }
  get steps(): number {
    let count = 0;
    for (const steps of this.byKey.values()) count += steps.length;
    return count;
  }
}

export type ClientSetup = {
  readonly nodes: readonly HaNode[];
  readonly number: number;
  readonly next: () => number;
  readonly histories: Histories;
  readonly keys: number;
  readonly stepsPerKey: number;
  isOver(): boolean;
};

/** Ends once `isOver`; an operation without an answer by then may have happened. */
export async function runClient({ nodes, number, next, histories, keys, stepsPerKey, isOver }: ClientSetup): Promise<void> {
  let rpc: RpcClient | undefined;
  let node = nodes[number % nodes.length] as HaNode;
  while (!isOver()) {
    try {
      rpc ??= await node.rpc();
      const key = `key-${Math.floor(next() * keys)}`;
      const steps = histories.byKey.get(key) ?? [];
      histories.byKey.set(key, steps);
      if (steps.length >= stepsPerKey) {
        await sleep(5);
        continue;
      }
      const isAnswered = await operate({ rpc, id: idOf(number), key, choice: next(), histories, note: (step) => steps.push(step) });
      if (!isAnswered) throw new Error("it does not lead");
      histories.answeredBy.add(node.name);
      await sleep(next() * 4);
    } catch {
      rpc?.close();
      rpc = undefined;
      node = nodes[Math.floor(next() * nodes.length)] as HaNode;
      await sleep(5);
    }
  }
  rpc?.close();
}

type Operation = {
  readonly rpc: RpcClient;
  readonly id: string;
  readonly key: string;
  readonly choice: number;
  readonly histories: Histories;
  note(step: Step): void;
};

const isAway = (code: number) => code === -1010 || code === -1011;

/** Returns false where the master says that it does not lead. */
async function operate({ rpc, id, key, choice, histories, note }: Operation): Promise<boolean> {
  const from = histories.now();
  const now = () => histories.now();
  if (choice < 0.5) {
    const found = await rpc.call("GetReplicaList", key, "");
    if (found.ok) note({ from, to: now(), sure: true, kind: "read", value: found.value.checksum });
    else if (found.code === NOT_FOUND) note({ from, to: now(), sure: true, kind: "read", value: undefined });
    return found.ok || !isAway(found.code);
  }
  if (choice < 0.6) {
    try {
      const removed = await rpc.call("Remove", key, true, "");
      if (removed.ok) note({ from, to: now(), sure: true, kind: "remove" });
      else if (removed.code === NOT_FOUND) note({ from, to: now(), sure: true, kind: "read", value: undefined });
      return removed.ok || !isAway(removed.code);
    } catch (error) {
      note({ from, to: Infinity, sure: false, kind: "remove" });
      throw error;
    }
  }
  const value = histories.nextValue();
  try {
    const begun = await rpc.call("UpsertStart", id, key, 64n, plain, "");
    if (!begun.ok) return !isAway(begun.code);
    const ended = await rpc.call("UpsertEnd", id, { key, checksum: value }, 4, "");
    if (ended.ok) note({ from, to: now(), sure: true, kind: "write", value });
    else note({ from, to: Infinity, sure: false, kind: "remove" });
    return ended.ok || !isAway(ended.code);
  } catch (error) {
    // After an unfinished upsert the replaced value may be gone, and the new one may exist.
    note({ from, to: Infinity, sure: false, kind: "remove" });
    note({ from, to: Infinity, sure: false, kind: "write", value });
    throw error;
  }
}
