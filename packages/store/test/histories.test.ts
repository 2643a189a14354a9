// Histories of many clients on a few keys, with the master killed and connections cut, checked for linearizability.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { RpcClient } from "../src/rpc/client.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { isLinearizable, type Step } from "./linearizable.ts";
import { startMaster, type TestMaster } from "./master.ts";

const CLIENTS = 4;
const KEYS = 5;
const ROUNDS = 5;
const STEPS_PER_KEY = 60;
const idOf = (client: number) => `00000000-0000-0002-0000-${client.toString(16).padStart(12, "0")}`;

/** A pseudo-random generator that is determined by its seed. */
function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

let clock = 0;
const now = () => ++clock;
let lastValue = 0n;

type Noted = (step: Step) => void;

/** Executes one operation of a client, and records what its answers prove. */
async function operate(rpc: RpcClient, client: number, key: string, choice: number, note: Noted): Promise<void> {
  const from = now();
  if (choice < 0.45) {
    const found = await rpc.call("GetReplicaList", key, "");
    if (found.ok) note({ from, to: now(), sure: true, kind: "read", value: found.value.checksum });
    else if (found.code === -704) note({ from, to: now(), sure: true, kind: "read", value: undefined });
    return;
  }
  if (choice < 0.6) {
    try {
      const removed = await rpc.call("Remove", key, true, "");
      if (removed.ok) note({ from, to: now(), sure: true, kind: "remove" });
      else if (removed.code === -704) note({ from, to: now(), sure: true, kind: "read", value: undefined });
    } catch (error) {
      note({ from, to: Infinity, sure: false, kind: "remove" });
      throw error;
    }
    return;
  }
  const replaces = choice >= 0.8;
  const value = ++lastValue;
  const maybe = () => {
    // After an unfinished upsert the replaced value may be gone, and the new one may exist.
    note({ from, to: Infinity, sure: false, kind: "remove" });
    note({ from, to: Infinity, sure: false, kind: "write", value });
  };
  try {
    const begun = await rpc.call(replaces ? "UpsertStart" : "PutStart", idOf(client), key, 64n, plain, "");
    if (!begun.ok) return;
    const ended = await rpc.call(replaces ? "UpsertEnd" : "PutEnd", idOf(client), { key, checksum: value }, 4, "");
    if (ended.ok) note({ from, to: now(), sure: true, kind: "write", value });
    else note({ from, to: Infinity, sure: false, kind: "remove" });
  } catch (error) {
    maybe();
    throw error;
  }
}

async function client(master: TestMaster, number: number, seed: number, histories: Map<string, Step[]>, ended: () => boolean): Promise<void> {
  const next = random(seed);
  let rpc: RpcClient | undefined;
  while (!ended()) {
    try {
      rpc ??= await master.rpc();
      const key = `key-${Math.floor(next() * KEYS)}`;
      const steps = histories.get(key) ?? [];
      histories.set(key, steps);
      if (steps.length >= STEPS_PER_KEY) {
        await sleep(5);
        continue;
      }
      const working = operate(rpc, number, key, next(), (step) => steps.push(step));
      if (next() < 0.03) rpc.close();
      await working;
      await sleep(next() * 8);
    } catch {
      rpc?.close();
      rpc = undefined;
      await sleep(20);
    }
  }
  rpc?.close();
}

void test("puts, gets, removals and upserts of many clients are linearizable, through kills of the master and cut connections", async (t) => {
  const seed = Number(process.env["SVC_TEST_SEED"] ?? Math.floor(Math.random() * 1e9));
  t.diagnostic(`seed ${seed}`);
  const next = random(seed);
  const flags = ["--client_ttl=600s", "--store.suspect_after_ms=600000", "--store.log_file_bytes=65536", "--store.snapshot_log_bytes=65536"];
  await using master = await startMaster({ flags });
  let checked = 0;
  for (let round = 0; round < ROUNDS; round++) {
    // Clients continue only once the holder is back, since every key is a miss before that.
    const mount = async () => {
      const rpc = await master.rpc();
      assert.ok((await rpc.call("MountSegment", segmentOf(1, 1n << 30n), clientID)).ok);
      rpc.close();
    };
    await mount();
    const cleaner = await master.rpc();
    await cleaner.call("RemoveAll", true, "");
    for (let key = 0; key < KEYS; key++) {
      await cleaner.call("UpsertStart", clientID, `key-${key}`, 64n, plain, "");
      await cleaner.call("UpsertRevoke", clientID, `key-${key}`, 4, "");
    }
    cleaner.close();
    const histories = new Map<string, Step[]>();
    let stopped = false;
    const run = () => Array.from({ length: CLIENTS }, (_, number) => client(master, number, Math.floor(next() * 2 ** 32), histories, () => stopped));
    for (let kill = 0; kill < 3; kill++) {
      stopped = false;
      const clients = run();
      await sleep(50 + next() * 150);
      stopped = true;
      await master.kill();
      await Promise.all(clients);
      await master.start();
      await mount();
    }
    for (const [key, steps] of histories) {
      checked += steps.length;
      assert.ok(isLinearizable(steps), `seed ${seed}, ${key}: ${JSON.stringify(steps, (_name, value) => (typeof value === "bigint" ? `${value}` : value))}`);
    }
  }
  assert.ok(checked > 100, `only ${checked} steps were judged`);
});

void test("the check of histories refuses a value that was never written, one that was removed, and one that came back", () => {
  const write = (from: number, to: number, value: bigint): Step => ({ from, to, sure: true, kind: "write", value });
  const read = (from: number, to: number, value: bigint | undefined): Step => ({ from, to, sure: true, kind: "read", value });
  assert.ok(isLinearizable([write(1, 4, 7n), read(2, 3, undefined), read(5, 6, 7n)]));
  assert.ok(isLinearizable([write(1, 4, 7n), read(2, 3, 7n)]));
  assert.ok(!isLinearizable([write(1, 2, 7n), read(3, 4, 8n)]));
  assert.ok(!isLinearizable([write(1, 2, 7n), read(3, 4, undefined)]));
  assert.ok(!isLinearizable([write(1, 2, 7n), write(3, 4, 8n), read(5, 6, 7n)]));
  assert.ok(isLinearizable([write(1, 2, 7n), { from: 3, to: Infinity, sure: false, kind: "write", value: 8n }, read(5, 6, 7n), read(7, 8, 8n)]));
  assert.ok(!isLinearizable([write(1, 2, 7n), { from: 3, to: 4, sure: true, kind: "remove" }, read(5, 6, 7n)]));
});
