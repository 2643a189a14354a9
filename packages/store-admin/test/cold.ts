// Operations on cold-tier devices for tests: create and register, fill, and query.
import assert from "node:assert/strict";
import { until } from "@svc/harness/until.ts";
import type { Body, Cluster, Server } from "./cluster.ts";
import type { ColdStorage } from "./cold-storage.ts";

export const COLD = "/v1/cold-tier";
export const DEVICES = `${COLD}/devices`;

/** A command that hits a restart of the owner changes nothing and says so, so it is retried. */
export async function ask(cluster: Cluster, path: string, body: object = {}, status = 200): Promise<Body> {
  const answer = await until("an answer while the owner does not start", async () => {
    const each = await cluster.ask("POST", `${DEVICES}/${path}`, body);
    return each.status === 409 && /stale epoch .*try again/.test(JSON.stringify(each.body)) ? undefined : each;
  });
  assert.equal(answer.status, status, JSON.stringify(answer.body));
  return answer.body;
}

export async function look(cluster: Cluster, path: string, status = 200): Promise<Body> {
  const answer = await cluster.ask("GET", `${COLD}/${path}`);
  assert.equal(answer.status, status, JSON.stringify(answer.body));
  return answer.body;
}

export async function addDevice(cluster: Cluster, stableID: string, id: string, { kind, target }: ColdStorage, more: object = {}): Promise<void> {
  const definition = { stable_id: stableID, cold_tier_id: id, kind, target, ...more };
  const created = await cluster.ask("POST", DEVICES, definition);
  assert.equal(created.status, 201, JSON.stringify(created.body));
  const registered = await ask(cluster, `${id}/register`, {}, 201);
  assert.equal(registered.state, "healthy");
}

/** Starts a service that can reach the storage. */
export const addOwner = (cluster: Cluster, stableID: string, { flags, env }: ColdStorage, more: readonly string[] = []) =>
  cluster.addService(stableID, [...flags, ...more], env);

/** Waits until a device has this many files; released ones are deleted a little later. */
export const untilFiles = (storage: ColdStorage, id: string, count: number) =>
  until(`${count} files on device ${id}`, async () => ((await storage.filesIn(id)).length === count ? true : undefined), 50);

/** Runs an offload of one owner until it ends. */
export async function offload(cluster: Cluster, stableID: string, query = ""): Promise<Body> {
  const begun = await cluster.ask("POST", `${COLD}/offloads/trigger${query}`, { stable_id: stableID });
  assert.equal(begun.status, 202, JSON.stringify(begun.body));
  return until(
    "the end of an offload",
    async () => {
      const task = await look(cluster, `offloads/${begun.body.task_id}${query}`);
      return task.state === "succeeded" || task.state === "failed" ? task : undefined;
    },
    100,
  );
}

/** Returns the object's text as a service reads it; undefined for a miss. */
export async function read(service: Server, key: string): Promise<string | undefined> {
  const answer = await fetch(`${service.url}/api/get/${key}`);
  return answer.status === 200 ? answer.text() : undefined;
}

/** A restart loses the objects in memory; those on devices are served again. */
export async function restart(service: Server): Promise<void> {
  await service.kill();
  await service.start();
}

/** Waits until a device is served again. */
export const ready = (cluster: Cluster, id: string) =>
  until(
    `device ${id} is served`,
    async () => {
      const device = await look(cluster, `devices/${id}`);
      return device.last_error === null && device.state !== "failed" ? (device as Body) : undefined;
    },
    50,
  );
