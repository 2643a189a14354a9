// A cold-tier device whose folder stops answering, including reads.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needsHangingFolder, startHangingFolder } from "@svc/harness/hanging-folder.ts";
import { until } from "@svc/harness/until.ts";
import { startCluster } from "./cluster.ts";
import { addDevice, addOwner, look, offload, read, ready, restart } from "./cold.ts";
import { COUNT, keys, putAll, readAll } from "./cold-kills.ts";
import { inFolder } from "./cold-storage.ts";

void test(
  "a device whose folder stops answering fails, its objects are misses while memory goes on, and all are back with the folder",
  needsHangingFolder,
  async () => {
    await using folder = await startHangingFolder();
    await using unused = await inFolder.open();
    const storage = { ...unused, target: { type: "directory", path: folder.path }, root: folder.path };
    await using cluster = await startCluster();
    const owner = await addOwner(cluster, "owner", storage);
    await putAll(cluster, owner);
    await addDevice(cluster, "owner", "cold-1", storage);
    await until("all is on the device", async () => {
      await offload(cluster, "owner");
      return (await look(cluster, "devices/cold-1/blockers")).blocked_objects === COUNT || undefined;
    });
    await restart(owner);
    await ready(cluster, "cold-1");
    await readAll(owner);
    // The restart discards cached copies of what was read.
    await restart(owner);
    await ready(cluster, "cold-1");
    await using _hung = await folder.hang();
    for (const key of keys.slice(0, 2)) assert.equal(await read(owner, key), undefined, "a miss, within the time of a get");
    await until("the device fails", async () => ((await look(cluster, "devices/cold-1")).state === "failed" ? true : undefined), 200);
    await cluster.put(owner, "during", "bytes");
    assert.equal(await read(owner, "during"), "bytes");
    assert.ok((await folder.go()) > 0);
    await ready(cluster, "cold-1");
    await until("the master names the device again", async () => ((await read(owner, keys[0] as string)) === undefined ? undefined : true));
    await readAll(owner);
  },
);
