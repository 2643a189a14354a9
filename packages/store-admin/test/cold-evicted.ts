// Puts twice as many bytes as the owner's memory holds, while a device receives the objects that must leave it.
import { until } from "@svc/harness/until.ts";
import type { Cluster, Server } from "./cluster.ts";

export const VALUE_BYTES = 2 ** 20;
/** The values have twice the size of the owner's memory. */
export const COUNT = 64;
export const keys = Array.from({ length: COUNT }, (_, at) => `evicted-${at}`);
export const bytesOf = (key: string) => `${key} `.repeat(Math.ceil(VALUE_BYTES / (key.length + 1))).slice(0, VALUE_BYTES);
/** Short leases, so that no object stays in memory for long. */
export const MASTER = ["--default_kv_lease_ttl=1000"];

/** Retries like an engine: a put that finds no space now is repeated. */
export async function putAll(service: Server): Promise<void> {
  for (const key of keys)
    await until(
      `${key} is stored`,
      async () => (await fetch(`${service.url}/api/put`, { method: "PUT", body: JSON.stringify({ key, value: bytesOf(key) }) })).ok || undefined,
      50,
    );
}

/** Returns the keys that are on a device by now. */
export const backed = async (cluster: Cluster) => {
  const states = await Promise.all(keys.map(async (key) => (await cluster.ask("GET", `/v1/cold-tier/objects/${key}`)).body.cold_backing?.state));
  return keys.filter((_, at) => states[at] === "materialized");
};
