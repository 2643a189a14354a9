// Identities of objects and clients: separate domains, object sets and tenants, stable ids across restarts, and the dashboard's rows.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { StoreClient } from "@svc/store/client/store-client.ts";
import { type Body, startCluster } from "./cluster.ts";
import { offload } from "./cold.ts";
import { makeFolder } from "./cold-storage.ts";
import { ended, segmentsOf, submit } from "./migrate.ts";

void test("equal keys in two domains are two objects: one moves, is listed and removed, and the others stay", async () => {
  await using cluster = await startCluster();
  const one = await cluster.addService("one");
  const a = await one.segment();
  const scopes = [{}, { domain: "blue" }, { domain: "blue", objectSet: "set" }, { objectSet: "set" }, { domain: "red" }];
  await using clients = new AsyncDisposableStack();
  const opened: StoreClient[] = [];
  for (const scope of scopes) opened.push(clients.use(await StoreClient.open({ master: cluster.rpc, ...scope })));
  const open = (at: number) => opened[at] ?? assert.fail("no such client");
  for (const at of scopes.keys()) assert.equal(await open(at).put("k", Buffer.from(`of scope ${at}`)), true);
  const two = await cluster.addService("two");
  const b = await two.segment();
  const moved = await ended(
    cluster,
    await submit(cluster, "move", { domain: "blue", key: "k", source_segment: a, target_segments: [b], task_executor: "one" }),
  );
  assert.equal(moved.state, "succeeded", moved.last_error);
  const at = async (index: number) => (await open(index).replicas("k")).map(({ endpoint }) => endpoint);
  assert.deepEqual(await Promise.all([...scopes.keys()].map(at)), [[a], [b], [a], [a], [a]]);
  // Naming the default domain has the same meaning as naming none.
  const named = await ended(
    cluster,
    await submit(cluster, "copy", { domain: "default", object_set: "default", key: "k", source_segment: a, target_segments: [b], task_executor: "one" }),
  );
  assert.equal(named.state, "succeeded", named.last_error);
  assert.deepEqual([(await at(0)).sort(), await at(3)], [[a, b].sort(), [a]]);
  await open(2).remove("k", true);
  assert.equal(await open(2).get("k"), undefined);
  assert.deepEqual([...(await open(1).replicasMatching("^k$")).keys()], ["k"]);
  assert.equal(await open(4).removeMatching("^k$", true), 1);
  for (const index of [0, 1, 3]) assert.equal((await open(index).get("k"))?.toString(), `of scope ${index}`);
  assert.equal(await open(4).get("k"), undefined);
  await assert.rejects(open(0).put("\x1fblue\x1fdefault\x1fk", Buffer.from("x")), /must not begin with the character U\+001F/);
});

void test("svc store clients shows a service's stable id, which survives a restart, and its epoch, which grows", async () => {
  await using cluster = await startCluster();
  const service = await cluster.addService("", []);
  const row = () =>
    until("the client", async () => {
      const { clients } = (await (await fetch(`${cluster.master.url}/api/v1/clients`)).json()) as { clients: Body[] };
      return clients.find(({ heard, epoch }) => heard && epoch > 0);
    });
  const before = await row();
  await service.kill();
  await until("a silent client", async () => {
    const { clients } = (await (await fetch(`${cluster.master.url}/api/v1/clients`)).json()) as { clients: Body[] };
    return clients.some(({ heard }) => heard) ? undefined : true;
  });
  await service.start();
  const after = await row();
  assert.equal(after.stable_id, before.stable_id);
  assert.ok(after.epoch > before.epoch);
  assert.notEqual(after.client_id, before.client_id);
  await cluster.master.kill();
  await cluster.master.start();
  assert.deepEqual(await row(), after, "a master that was restarted is told again");
});

void test("every metric of the dashboard's rows about the admin server is in the scrape of a server that was used", async () => {
  await using cluster = await startCluster();
  const [one, two] = [await cluster.addService("one"), await cluster.addService("two")];
  await cluster.put(one, "k", "value");
  const [held = ""] = await segmentsOf(cluster, "k");
  const other = held === (await one.segment()) ? await two.segment() : await one.segment();
  const task = await ended(cluster, await submit(cluster, "copy", { key: "k", source_segment: held, target_segments: [other], task_executor: "one" }));
  assert.equal(task.state, "succeeded", task.last_error);
  const { body: text } = await cluster.ask("GET", "/metrics");
  const file = new URL("../../../deploy/grafana/store.json", import.meta.url);
  const { panels } = JSON.parse(readFileSync(file, "utf8")) as { panels: { targets: { expr: string }[] }[] };
  const asked = panels.flatMap(({ targets }) => targets).filter(({ expr }) => expr.includes("svc_store_admin_"));
  assert.ok(asked.length >= 2);
  for (const { expr } of asked) {
    // Metrics of devices have no samples without a device.
    if (/^svc_store_admin_\w+$/.test(expr)) {
      assert.match(text, new RegExp(`^# TYPE ${expr} gauge$`, "m"));
      continue;
    }
    const [, labels = "", name = ""] = /by \(([^)]*)\) .*?(svc_store_admin_\w+)/.exec(expr) ?? assert.fail(expr);
    const sample = new RegExp(`^${name}\\{(.*)\\} [1-9]`, "m").exec(text) ?? assert.fail(`${name} is not in the scrape`);
    for (const label of labels.split(", ")) assert.ok(sample[1]?.includes(`${label}="`), `${name} has no label ${label}`);
  }
});

void test("equal keys of two tenants are two objects, and a tenant that the master does not know has none", async () => {
  await using cluster = await startCluster({ master: ["--enable_multi_tenants"] });
  for (const tenant of ["default", "blue", "red"]) {
    const answer = await fetch(`${cluster.master.url}/api/v1/tenant_quotas?tenant_id=${tenant}`, {
      method: "PUT",
      body: '{"requested_quota_bytes": 1073741824}',
    });
    assert.equal(answer.status, 200);
  }
  const one = await cluster.addService("one");
  const a = await one.segment();
  await using blue = await StoreClient.open({ master: cluster.rpc, tenant: "blue" });
  await using red = await StoreClient.open({ master: cluster.rpc, tenant: "red" });
  await blue.put("k", Buffer.from("blue"));
  await red.put("k", Buffer.from("red"));
  const two = await cluster.addService("two");
  const b = await two.segment();
  const request = { key: "k", source_segment: a, target_segments: [b], task_executor: "two" };
  const moved = await ended(cluster, await submit(cluster, "move", { ...request, tenant: "blue" }));
  assert.equal(moved.state, "succeeded", moved.last_error);
  const at = async (client: StoreClient) => (await client.replicas("k")).map(({ endpoint }) => endpoint);
  assert.deepEqual([await at(blue), await at(red)], [[b], [a]]);
  const unknown = await ended(cluster, await submit(cluster, "move", { ...request, tenant: "green" }));
  assert.deepEqual([unknown.state, unknown.attempts], ["failed", 1]);
  assert.deepEqual([(await blue.get("k"))?.toString(), (await red.get("k"))?.toString()], ["blue", "red"]);
});

void test("with tenants off, a request for one tenant affects no other objects", async () => {
  await using folder = makeFolder();
  await using cluster = await startCluster();
  const one = await cluster.addService("one");
  const a = await one.segment();
  await cluster.put(one, "k", "everybody's");
  const two = await cluster.addService("two");
  const request = { tenant: "acme", key: "k", source_segment: a, target_segments: [await two.segment()], task_executor: "two" };
  assert.equal((await ended(cluster, await submit(cluster, "copy", request))).state, "failed");
  const definition = { stable_id: "one", cold_tier_id: "cold-1", kind: "ssd", target: { type: "directory", path: folder.path } };
  assert.equal((await cluster.ask("POST", "/v1/cold-tier/devices?tenant=acme", definition)).status, 201);
  assert.equal((await cluster.ask("POST", "/v1/cold-tier/devices/cold-1/register?tenant=acme", {})).status, 201);
  const task = await offload(cluster, "one", "?tenant=acme");
  assert.deepEqual([task.state, task.materialized], ["failed", 0]);
  await using client = await StoreClient.open({ master: cluster.rpc });
  assert.deepEqual(
    (await client.replicas("k")).map(({ endpoint }) => endpoint),
    [a],
  );
});
