// Rounds of faults under load for the tests of several masters: kills, freezes and handovers, each checked key by key.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { clientID, plain, segmentOf } from "./calls.ts";
import type { Cluster, HaNode } from "./ha-cluster.ts";
import { Histories, random, runClient } from "./ha-history-clients.ts";
import { isLinearizable } from "./linearizable.ts";

const CLIENTS = 4;
const KEYS = 6;
const STEPS_PER_KEY = 50;
const FROZEN_MS = 1_200;

/** A fault that strikes the leader under load; it is over when the promise resolves. */
export type Fault = { readonly name: string; strike(cluster: Cluster, leader: HaNode): Promise<void> };

export const kill: Fault = {
  name: "kill",
  async strike(cluster, leader) {
    await leader.kill();
    await cluster.leader();
    await leader.start();
  },
};
export const killStandby: Fault = {
  name: "kill of the standby",
  async strike({ nodes }, leader) {
    const standby = nodes.find((node) => node !== leader) as HaNode;
    await standby.kill();
    await standby.start();
  },
};
export const freeze: Fault = {
  name: "freeze",
  async strike(_cluster, leader) {
    await leader.freeze();
    await sleep(FROZEN_MS);
    leader.thaw();
  },
};
export const handOver: Fault = {
  name: "hand-over",
  async strike(_cluster, leader) {
    const { in_sync } = await leader.ha();
    await leader.ask(`/api/v1/lead?to=${in_sync[0]}`, { method: "POST" });
  },
};

/** The holder does not exist, so the master must not probe it or miss its pings. */
export const quietFlags = ["--client_ttl=600s", "--store.suspect_after_ms=600000"];
/** Silence is noticed as early as with the default settings. */
export const promptFlags = [...quietFlags, "--store.takeover_after_ms=600", "--store.standby_timeout_ms=1000"];

async function prepare(leader: HaNode): Promise<void> {
  const rpc = await leader.rpc();
  assert.ok((await rpc.call("MountSegment", segmentOf(1, 1n << 30n), clientID)).ok);
  await rpc.call("RemoveAll", true, "");
  for (let key = 0; key < KEYS; key++) {
    await rpc.call("UpsertStart", clientID, `key-${key}`, 64n, plain, "");
    await rpc.call("UpsertRevoke", clientID, `key-${key}`, 4, "");
  }
  rpc.close();
}

/** Runs one round with clients before, during and after the fault. Returns the number of checked steps. */
export async function faultRound(cluster: Cluster, fault: Fault, seed: number): Promise<number> {
  const next = random(seed);
  const leader = await cluster.inSync(cluster.nodes.length - 1);
  await prepare(leader);
  const histories = new Histories();
  let isOver = false;
  const clients = Array.from({ length: CLIENTS }, (_, number) =>
    runClient({
      nodes: cluster.nodes,
      number,
      next: random(Math.floor(next() * 2 ** 32)),
      histories,
      keys: KEYS,
      stepsPerKey: STEPS_PER_KEY,
      isOver: () => isOver,
    }),
  );
  await sleep(50 + next() * 150);
  await fault.strike(cluster, leader);
  await cluster.leader();
  await sleep(200);
  isOver = true;
  await Promise.all(clients);
  for (const [key, steps] of histories.byKey) {
    const shown = () => JSON.stringify(steps, (_name, value) => (typeof value === "bigint" ? `${value}` : value));
    assert.ok(isLinearizable(steps), `seed ${seed}, ${fault.name} of ${leader.name}, ${key}: ${isLinearizable(steps) ? "" : shown()}`);
  }
  return histories.steps;
}
