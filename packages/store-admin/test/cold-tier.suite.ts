// The behaviour of the cold tier, with devices in folders or buckets: objects move to a device, are read from it alone, and leave it again.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { startCluster } from "./cluster.ts";
import { addDevice, addOwner, ask, DEVICES, look, offload, read, ready, restart, untilFiles } from "./cold.ts";
import { bytesOf, COUNT, keys, putAll, readAll } from "./cold-kills.ts";
import type { OpenStorage } from "./cold-storage.ts";

export function coldTierSuite({ what, skip, open }: OpenStorage): void {
  void describe(`devices in ${what}`, skip, () => {
    void test("an object moves to a device, is read from there alone, moves back to memory, and then its device can be removed", async () => {
      await using storage = await open();
      await using cluster = await startCluster();
      const owner = await addOwner(cluster, "owner", storage);
      const other = await cluster.addService("other");
      await addDevice(cluster, "owner", "cold-1", storage);
      await putAll(cluster, owner);
      assert.deepEqual((await look(cluster, "objects/key-0")).cold_backing, null);
      // Objects are spread over both services' memory, and only an owner's own can be offloaded to its device.
      const task = await offload(cluster, "owner");
      assert.equal(task.state, "succeeded", task.last_error);
      const stored = (await storage.filesIn("cold-1")).length;
      assert.ok(stored > 0 && task.materialized === stored, JSON.stringify(task));
      const { blocked_objects, reclaimable_objects } = await look(cluster, "devices/cold-1/blockers");
      assert.deepEqual([blocked_objects, reclaimable_objects], [stored, stored]);
      const found = await Promise.all(keys.map(async (key) => ({ key, backing: (await look(cluster, `objects/${key}`)).cold_backing })));
      const cold = found.filter(({ backing }) => backing !== null);
      assert.equal(cold.length, stored);
      for (const { key, backing } of cold) {
        assert.deepEqual([backing.device_id, backing.owner.stable_id, backing.state, backing.length], ["cold-1", "owner", "materialized", bytesOf(key).length]);
        assert.match(backing.checksum, /^\d+$/);
        assert.ok((await storage.read(backing.locator)).includes(bytesOf(key)));
      }
      // The restart clears the owner's memory, so only the device has these objects now.
      await restart(owner);
      const { epoch } = await ready(cluster, "cold-1");
      assert.ok(epoch > cold[0]?.backing.owner.epoch);
      for (const { key } of cold) assert.equal(await read(other, key), bytesOf(key));
      assert.deepEqual((await look(cluster, "devices/cold-1/blockers")).reclaimable_objects, 0);
      const refused = await cluster.ask("POST", `${DEVICES}/cold-1/drain`, {});
      assert.equal(refused.status, 409, JSON.stringify(refused.body));
      assert.equal((await cluster.ask("POST", `${DEVICES}/cold-1/unregister`, { force: true })).status, 409);
      assert.equal((await look(cluster, "devices/cold-1")).state, "healthy");
      const draining = await ask(cluster, "cold-1/drain", { migration_task_executor: "other" });
      assert.deepEqual([draining.state, draining.migration_tasks_submitted], ["draining", stored]);
      await untilFiles(storage, "cold-1", 0);
      for (const { key } of cold) assert.equal(await read(other, key), bytesOf(key));
      const gone = await ask(cluster, "cold-1/unregister");
      assert.deepEqual([gone.state, gone.blocked_objects, gone.schedulable], ["unregistered", 0, false]);
      assert.equal((await look(cluster, "devices/cold-1")).epoch, null);
      for (const { key } of cold) assert.equal(await read(other, key), bytesOf(key));
    });

    void test("files that no object claims, and damaged ones, are quarantined and reported, never removed or served", async () => {
      await using storage = await open();
      await using cluster = await startCluster();
      const owner = await addOwner(cluster, "owner", storage);
      await putAll(cluster, owner);
      await addDevice(cluster, "owner", "cold-1", storage);
      await offload(cluster, "owner");
      await owner.kill();
      const [first = ""] = await storage.filesIn("cold-1");
      // The damage is behind the object's bytes, in the file's own description of itself.
      await storage.damage("cold-1", first, 60);
      const [orphan, half] = [await storage.plantOrphan("cold-1"), await storage.plantHalf("cold-1")];
      await owner.start();
      await ready(cluster, "cold-1");
      const report = await until("what was quarantined", async () => {
        const found = await look(cluster, "devices/cold-1/orphan-quarantine");
        return found.count === 3 ? found : undefined;
      });
      assert.equal(report.root_dir, storage.root);
      const names: string[] = report.files.map(({ area, file_name }: { area: string; file_name: string }) => `${area} ${file_name}`).sort();
      assert.deepEqual(names.slice(1), [`final ${orphan}`, `pending ${half}`]);
      assert.ok(names[0]?.startsWith(`final ${first}`), names[0]);
      for (const { encoded_path, size_bytes } of report.files) assert.equal((await storage.read(encoded_path)).length, size_bytes);
      assert.equal((await look(cluster, "devices/cold-1/blockers")).blocked_objects, COUNT - 1);
    });

    void test("a device takes no more than its size, and a manual free releases what memory also holds", async () => {
      await using storage = await open();
      await using cluster = await startCluster();
      const owner = await addOwner(cluster, "owner", storage);
      await putAll(cluster, owner);
      await addDevice(cluster, "owner", "cold-1", storage, { capacity_override_bytes: 6000 });
      const task = await offload(cluster, "owner");
      const held = (await storage.filesIn("cold-1")).length;
      assert.ok(held > 0 && held < COUNT && task.materialized === held, JSON.stringify(task));
      const shown = await look(cluster, "devices/cold-1");
      assert.ok(shown.used_bytes <= 6000 && shown.capacity_bytes === 6000 && shown.free_bytes === 6000 - shown.used_bytes, JSON.stringify(shown));
      const freed = await ask(cluster, "cold-1/manual-free");
      if (shown.used_bytes > 4800) assert.ok(freed.freed_backings > 0, JSON.stringify(freed));
      assert.equal(freed.reached_low_watermark, true, JSON.stringify(freed));
      await untilFiles(storage, "cold-1", held - freed.freed_backings);
      await readAll(owner);
    });

    void test("a folder or bucket belongs to one device of one tenant, and a tenant's device takes only that tenant's objects", async () => {
      await using storage = await open();
      await using cluster = await startCluster({ master: ["--enable_multi_tenants"] });
      for (const tenant of ["red", "blue"]) {
        const body = JSON.stringify({ requested_quota_bytes: 2 ** 20 });
        assert.equal((await fetch(`${cluster.master.url}/api/v1/tenant_quotas?tenant_id=${tenant}`, { method: "PUT", body })).status, 200);
      }
      const owner = await addOwner(cluster, "owner", storage, ["--tenant_id=red"]);
      const other = await cluster.addService("other", ["--tenant_id=blue"]);
      await putAll(cluster, owner);
      await putAll(cluster, other);
      const definition = { stable_id: "owner", cold_tier_id: "cold-1", kind: storage.kind, target: storage.target };
      for (const tenant of ["red", "blue"]) assert.equal((await cluster.ask("POST", `${DEVICES}?tenant=${tenant}`, definition)).status, 201);
      assert.equal((await cluster.ask("POST", `${DEVICES}/cold-1/register?tenant=red`, {})).status, 201);
      const taken = await cluster.ask("POST", `${DEVICES}/cold-1/register?tenant=blue`, {});
      assert.equal(taken.status, 409, JSON.stringify(taken.body));
      assert.equal((await cluster.ask("GET", `${DEVICES}/cold-1`)).status, 404);
      const task = await offload(cluster, "owner", "?tenant=red");
      assert.ok(task.state === "succeeded" && task.materialized > 0, JSON.stringify(task));
      const backed = async (tenant: string) => {
        const found = await Promise.all(keys.map((key) => look(cluster, `objects/${key}?tenant=${tenant}`)));
        return found.filter(({ cold_backing }) => cold_backing !== null).length;
      };
      assert.deepEqual([await backed("red"), await backed("blue")], [task.materialized, 0]);
      assert.equal((await offload(cluster, "owner", "?tenant=blue")).state, "failed");
    });
  });
}
