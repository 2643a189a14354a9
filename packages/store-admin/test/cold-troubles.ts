// A device in a bucket whose server fails for a while.
import assert from "node:assert/strict";
import { startObjectRelay, type Trouble } from "@svc/harness/object-relay.ts";
import { startObjectServer } from "@svc/harness/object-server.ts";
import { until } from "@svc/harness/until.ts";
import { startCluster } from "./cluster.ts";
import { addDevice, addOwner, look, offload, read, ready, restart, untilFiles } from "./cold.ts";
import { COUNT, keys, putAll, readAll } from "./cold-kills.ts";
import { bucketStorage } from "./cold-storage.ts";

const why = { down: /PUT|GET/, busy: /503 SlowDown/, hang: /no data within|not answer|not finished/ } as const;

/**
 * The device fails in each trouble and then recovers with exactly the acknowledged objects. `isLong` also waits until its objects are
 * misses.
 */
export async function untilBack(troubles: readonly (Trouble & keyof typeof why)[], isLong = false): Promise<void> {
  const server = await startObjectServer();
  await using relay = await startObjectRelay(server.endpoint);
  await using storage = await bucketStorage(server, relay.endpoint);
  await using cluster = await startCluster();
  const owner = await addOwner(cluster, "owner", storage);
  await putAll(cluster, owner);
  await addDevice(cluster, "owner", "cold-1", storage);
  for (const trouble of troubles) {
    relay.trouble(trouble);
    const begun = await cluster.ask("POST", "/v1/cold-tier/offloads/trigger", { stable_id: "owner", max_tasks: 1 });
    const failed = await until(
      `the device fails while its server is in trouble: ${trouble}`,
      async () => {
        const device = await look(cluster, "devices/cold-1");
        return device.state === "failed" ? device : undefined;
      },
      200,
    );
    assert.match(failed.last_error, why[trouble]);
    assert.ok(failed.failure_count > 0 && !failed.schedulable);
    assert.equal((await storage.filesIn("cold-1")).length, 0, "nothing is there");
    relay.trouble("none");
    await ready(cluster, "cold-1");
    await until(
      "the offload has ended",
      async () => !["pending", "running"].includes((await look(cluster, `offloads/${begun.body.task_id}`)).state) || undefined,
      200,
    );
    if (trouble !== troubles.at(-1)) continue;
    // Objects that were retried meanwhile must exist and count only once.
    await until(
      "all is on the device",
      async () => {
        await offload(cluster, "owner");
        return (await look(cluster, "devices/cold-1/blockers")).blocked_objects === COUNT || undefined;
      },
      50,
    );
  }
  await untilFiles(storage, "cold-1", COUNT);
  await restart(owner);
  await ready(cluster, "cold-1");
  await readAll(owner);
  if (!isLong) return;
  relay.trouble("hang");
  // The restart discards cached copies of what was read.
  await restart(owner);
  for (const key of keys) assert.equal(await read(owner, key), undefined);
  relay.trouble("none");
  await ready(cluster, "cold-1");
  relay.trouble("down");
  await until(
    "the master sends nobody there",
    async () => ((await cluster.ask("GET", `/v1/cold-tier/objects/${keys[0]}`)).status === 404 ? true : undefined),
    200,
  );
  relay.trouble("none");
  await ready(cluster, "cold-1");
  await readAll(owner);
}
