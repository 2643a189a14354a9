// Operations on a cold-tier device while the admin server, the master and its owner are killed, and the objects that must survive them.
import assert from "node:assert/strict";
import { until } from "@svc/harness/until.ts";
import type { Cluster, Server } from "./cluster.ts";
import { addDevice, ask, DEVICES, look, offload, read, ready, restart, untilFiles } from "./cold.ts";
import type { ColdStorage } from "./cold-storage.ts";

export const COUNT = 12;
export const keys = Array.from({ length: COUNT }, (_, at) => `key-${at}`);
export const bytesOf = (key: string) => `the value of ${key} `.repeat(50);
export const putAll = async (cluster: Cluster, owner: Server) => {
  for (const key of keys) await cluster.put(owner, key, bytesOf(key));
};
export const readAll = async (service: Server) => {
  for (const key of keys) await until(`${key} is read`, async () => (await read(service, key)) === bytesOf(key) || undefined, 100);
};

/** Operations that must not change a device while it holds the only copy of its objects. */
export const acts = ["blockers", "unregister", "force", "manual-gc", "manual-free", "disable", "register"] as const;
type Act = (typeof acts)[number];

/** Runs each operation after a kill of the given process. */
export async function betweenKills(
  cluster: Cluster,
  owner: Server,
  storage: ColdStorage,
  { kills }: { kills: readonly (readonly [Server, Act])[] },
): Promise<void> {
  await addDevice(cluster, "owner", "cold-1", storage);
  await putAll(cluster, owner);
  assert.equal((await offload(cluster, "owner")).materialized, COUNT);
  await restart(owner);
  await ready(cluster, "cold-1");
  for (const [victim, act] of kills) {
    await restart(victim);
    await ready(cluster, "cold-1");
    await readAll(owner);
    if (act === "blockers") assert.equal((await look(cluster, "devices/cold-1/blockers")).blocked_objects, COUNT);
    else if (act === "unregister") {
      const left = await ask(cluster, "cold-1/unregister");
      assert.deepEqual([left.state, left.blocked_objects], ["draining", COUNT]);
    } else if (act === "force") await ask(cluster, "cold-1/unregister", { force: true }, 409);
    else if (act === "disable") {
      await ask(cluster, "cold-1/register", {}, 201);
      assert.equal((await ask(cluster, "cold-1/disable", { reason: "test" })).state, "disabled_by_admin");
    } else if (act === "register") assert.equal((await ask(cluster, "cold-1/register", {}, 201)).scanned_objects, COUNT);
    else await ask(cluster, `cold-1/${act}`);
    assert.equal((await storage.filesIn("cold-1")).length, COUNT);
  }
  await readAll(owner);
}

/** Kills each process the given number of milliseconds after a forced unregister began. */
export async function cutShort(
  cluster: Cluster,
  owner: Server,
  storage: ColdStorage,
  { kills }: { kills: readonly (readonly [Server, number])[] },
): Promise<void> {
  await putAll(cluster, owner);
  await addDevice(cluster, "owner", "cold-1", storage);
  for (const [victim, delayMs] of kills) {
    await ask(cluster, "cold-1/register", {}, 201);
    await offload(cluster, "owner");
    assert.equal((await storage.filesIn("cold-1")).length, COUNT);
    const begun = cluster.ask("POST", `${DEVICES}/cold-1/unregister`, { force: true }).catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, delayMs));
    await victim.kill();
    await begun;
    await victim.start();
    await until("it goes in the end", async () => {
      const again = await cluster.ask("POST", `${DEVICES}/cold-1/unregister`, { force: true });
      return again.status === 200 && again.body.state === "unregistered" ? true : undefined;
    });
    await untilFiles(storage, "cold-1", 0);
    await readAll(owner);
  }
}
