// Route migrations for tests: submitting them, waiting for a state, and reading the route.
import assert from "node:assert/strict";
import { until } from "@svc/harness/until.ts";
import type { Body, Cluster, Server } from "./cluster.ts";

export const MIGRATIONS = "/v1/route-migrations";
export const ended = (cluster: Cluster, id: string) =>
  until(`the end of ${id}`, async () => {
    const task = (await cluster.ask("GET", `${MIGRATIONS}/${id}`)).body;
    return task.state === "succeeded" || task.state === "failed" ? (task as Body) : undefined;
  });
export const state = (cluster: Cluster, id: string, wanted: string) =>
  until(
    `${id} ${wanted}`,
    async () => {
      const task = (await cluster.ask("GET", `${MIGRATIONS}/${id}`)).body;
      return task.state === wanted ? (task as Body) : undefined;
    },
    10,
  );

export async function submit(cluster: Cluster, mode: "copy" | "move", request: object): Promise<string> {
  const { status, body } = await cluster.ask("POST", `${MIGRATIONS}/${mode}`, { authority: "store-master", tenant: "default", ...request });
  assert.equal(status, 200, JSON.stringify(body));
  return body.task_id;
}

/** Returns the names of the segments that hold a complete replica. */
export async function segmentsOf(cluster: Cluster, key: string): Promise<string[]> {
  const rpc = await cluster.connect();
  const route = await rpc.call("FindRoute", key, "default");
  rpc.close();
  return route.ok
    ? route.value.replicas
        .filter(({ status }) => status === 3)
        .map(({ segment }) => segment)
        .sort()
    : [];
}
export const value = async (service: Server, key: string) => (await fetch(`${service.url}/api/get/${key}`)).text();
