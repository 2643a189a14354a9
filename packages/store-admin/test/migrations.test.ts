// Copies and moves of real objects between real services, while executors, masters and admin servers are killed.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "@svc/harness/until.ts";
import type { RpcClient } from "@svc/store/rpc/client.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { ended, MIGRATIONS, segmentsOf, state, submit, value } from "./migrate.ts";

void test("an executor without objects copies one to two segments and moves it on, and its bytes stay the same", async () => {
  await using cluster = await startCluster();
  const one = await cluster.addService("one");
  await cluster.put(one, "k", "some bytes");
  const [two, three] = [await cluster.addService("two"), await cluster.addService("three")];
  await cluster.addService("worker", ["--global_segment_size=0"]);
  const [a, b, c] = [await one.segment(), await two.segment(), await three.segment()];
  const copied = await ended(cluster, await submit(cluster, "copy", { key: "k", source_segment: a, target_segments: [b, c], task_executor: "worker" }));
  assert.deepEqual([copied.state, copied.attempts, copied.last_error], ["succeeded", 1, ""]);
  assert.deepEqual(await segmentsOf(cluster, "k"), [a, b, c].sort());
  await cluster.put(two, "m", "others");
  const [held] = await segmentsOf(cluster, "m");
  const target = [a, b, c].find((each) => each !== held);
  const moved = await ended(cluster, await submit(cluster, "move", { key: "m", source_segment: held, target_segments: [target], task_executor: "worker" }));
  assert.equal(moved.state, "succeeded", moved.last_error);
  assert.deepEqual(await segmentsOf(cluster, "m"), [target]);
  assert.deepEqual([await value(one, "k"), await value(three, "m")], ["some bytes", "others"]);
});

void test("hundreds of moves at once all end, each independently: those of missing objects fail", async () => {
  await using cluster = await startCluster();
  const one = await cluster.addService("one");
  const there = Array.from({ length: 300 }, (_, at) => `key-${at}`);
  for (const key of there) await cluster.put(one, key, `value of ${key}`);
  const two = await cluster.addService("two");
  const [a, b] = [await one.segment(), await two.segment()];
  const keys = there.flatMap((key, at) => (at % 10 === 0 ? [key, `none-${at}`] : [key]));
  const ids = await Promise.all(keys.map((key) => submit(cluster, "move", { key, source_segment: a, target_segments: [b], task_executor: "two" })));
  assert.equal(new Set(ids).size, keys.length);
  const tasks = await until("all have ended", async () => {
    const { tasks: all } = (await cluster.ask("GET", MIGRATIONS)).body;
    return all.every(({ state: each }: { state: string }) => each === "succeeded" || each === "failed") ? (all as Record<string, string>[]) : undefined;
  });
  const stateOf = new Map(tasks.map((task) => [task["key"], task["state"]]));
  assert.deepEqual(
    keys.filter((key) => stateOf.get(key) !== (key.startsWith("none") ? "failed" : "succeeded")),
    [],
  );
  for (const key of there.slice(0, 50)) {
    assert.deepEqual(await segmentsOf(cluster, key), [b], key);
    assert.equal(await value(one, key), `value of ${key}`);
  }
});

void test("a copy that does not fit on one of its targets changes nothing", async () => {
  await using cluster = await startCluster();
  const one = await cluster.addService("one");
  await cluster.put(one, "k", "x".repeat(20 * 2 ** 20));
  const two = await cluster.addService("two");
  const small = await cluster.addService("small", ["--global_segment_size=16mb"]);
  const [a, b, c] = [await one.segment(), await two.segment(), await small.segment()];
  const id = await submit(cluster, "copy", { key: "k", source_segment: a, target_segments: [b, c], task_executor: "one", max_retries: 2 });
  const task = await ended(cluster, id);
  assert.deepEqual([task.state, task.attempts], ["failed", 3]);
  assert.match(task.last_error, /the executor one failed: .*NO_AVAILABLE_HANDLE/);
  assert.deepEqual(await segmentsOf(cluster, "k"), [a]);
});

void test("a missing object or segment, or one that is not where the task says, fails at the first attempt with the reason", async () => {
  await using cluster = await startCluster();
  const [one, two] = [await cluster.addService("one"), await cluster.addService("two")];
  await cluster.put(one, "k", "value");
  const [held = ""] = await segmentsOf(cluster, "k");
  const other = held === (await one.segment()) ? await two.segment() : await one.segment();
  const rows = [
    [{ key: "none", source_segment: held, target_segments: [other] }, /the object is not there any more/],
    [{ key: "k", source_segment: other, target_segments: [held] }, /REPLICA_NOT_FOUND.*; the route has no replica in the source/],
    [{ key: "k", source_segment: held, target_segments: ["nowhere:1"] }, /^segment nowhere:1 was not found at the store's master; svc store segments lists/],
  ] as const;
  for (const [request, says] of rows) {
    const task = await ended(cluster, await submit(cluster, "copy", { ...request, task_executor: "one" }));
    assert.deepEqual([task.state, task.attempts], ["failed", 1]);
    assert.match(task.last_error, says);
  }
  assert.deepEqual(await segmentsOf(cluster, "k"), [held]);
});

void test("a task runs only on its executor: it waits while that one is stopped, and continues with its next start after a kill", async () => {
  await using cluster = await startCluster();
  const one = await cluster.addService("one");
  await cluster.put(one, "k", "value");
  const two = await cluster.addService("two");
  const worker = await cluster.addService("worker", ["--global_segment_size=0"]);
  const [a, b] = [await one.segment(), await two.segment()];
  await worker.freeze();
  const id = await submit(cluster, "move", { key: "k", source_segment: a, target_segments: [b], task_executor: "worker", max_retries: 100 });
  await until("a task in trouble", async () => ((await cluster.ask("GET", `${MIGRATIONS}/${id}`)).body.last_error === "" ? undefined : true));
  assert.deepEqual(await segmentsOf(cluster, "k"), [a], "no other client took it");
  await worker.kill();
  await worker.start();
  const task = await ended(cluster, id);
  assert.equal(task.state, "succeeded", task.last_error);
  assert.ok(task.attempts > 1);
  assert.deepEqual(await segmentsOf(cluster, "k"), [b]);
});

/** A fake executor that performs the master's part of a move and moves no bytes. */
async function playExecutor(cluster: Cluster, stableID: string): Promise<{ rpc: RpcClient; clientID: string; stop(): void }> {
  const rpc = await cluster.connect();
  const clientID = "00000000-0000-0007-0000-000000000007";
  await rpc.call("Ping", clientID);
  await rpc.call("ReMountSegment", [], clientID);
  const named = await rpc.call("Announce", clientID, stableID, 5n);
  assert.ok(named.ok);
  const timer = setInterval(() => void rpc.call("Ping", clientID).catch(() => undefined), 200);
  return { rpc, clientID, stop: () => clearInterval(timer) };
}

void test("an executor that is lost after doing its work is not needed: the route shows the move, and the task has succeeded", async () => {
  await using cluster = await startCluster();
  const one = await cluster.addService("one");
  await cluster.put(one, "k", "value");
  const two = await cluster.addService("two");
  const [a, b] = [await one.segment(), await two.segment()];
  const { rpc, clientID, stop } = await playExecutor(cluster, "actor");
  const id = await submit(cluster, "move", { key: "k", source_segment: a, target_segments: [b], task_executor: "actor" });
  await until("the task", async () => {
    const fetched = await rpc.call("FetchTasks", clientID, 16n);
    assert.ok(fetched.ok);
    const [task] = fetched.value;
    assert.equal(task?.maxRetries ?? 0, 0, "the master retries nothing of its own");
    return task;
  });
  assert.equal((await state(cluster, id, "running")).attempts, 1);
  assert.ok((await rpc.call("MoveStart", clientID, "k", "default", a, b)).ok);
  assert.ok((await rpc.call("MoveEnd", clientID, "k", "default")).ok);
  stop();
  rpc.close();
  const task = await ended(cluster, id);
  assert.deepEqual([task.state, task.attempts], ["succeeded", 1]);
  assert.deepEqual(await segmentsOf(cluster, "k"), [b]);
});

void test("an executor that is lost during a copy leaves no replica behind, and its next start makes the copy", async () => {
  await using cluster = await startCluster();
  const one = await cluster.addService("one");
  await cluster.put(one, "k", "value");
  const two = await cluster.addService("two");
  const [a, b] = [await one.segment(), await two.segment()];
  const { rpc, clientID, stop } = await playExecutor(cluster, "actor");
  const id = await submit(cluster, "copy", { key: "k", source_segment: a, target_segments: [b], task_executor: "actor", max_retries: 100 });
  await until("the task", async () => {
    const fetched = await rpc.call("FetchTasks", clientID, 16n);
    return fetched.ok ? fetched.value[0] : undefined;
  });
  assert.ok((await rpc.call("CopyStart", clientID, "k", "default", a, [b])).ok);
  stop();
  rpc.close();
  assert.deepEqual(await segmentsOf(cluster, "k"), [a]);
  await cluster.addService("actor", ["--global_segment_size=0"]);
  const task = await ended(cluster, id);
  assert.equal(task.state, "succeeded", task.last_error);
  assert.deepEqual(await segmentsOf(cluster, "k"), [a, b].sort());
  assert.equal(await value(two, "k"), "value");
});

void test("a killed admin server loses its queue and says so, reuses no task id, and the routes are unchanged", async () => {
  await using cluster = await startCluster();
  const one = await cluster.addService("one");
  await cluster.put(one, "k", "value");
  const a = await one.segment();
  const request = { key: "k", source_segment: a, target_segments: ["none"], task_executor: "nobody", max_retries: 1000 };
  assert.equal(await submit(cluster, "copy", request), "route-migration-1");
  assert.equal(await submit(cluster, "copy", request), "route-migration-2");
  await cluster.admin.kill();
  await cluster.admin.start();
  assert.match(cluster.admin.log(), /"upTo":"route-migration-2".*the queue of an earlier start is lost/);
  assert.deepEqual((await cluster.ask("GET", MIGRATIONS)).body, { count: 0, tasks: [] });
  const gone = await cluster.ask("GET", `${MIGRATIONS}/route-migration-2`);
  assert.deepEqual([gone.status, gone.body], [404, { error: "route migration task route-migration-2 was not found" }]);
  assert.equal(await submit(cluster, "copy", request), "route-migration-3");
  assert.deepEqual(await segmentsOf(cluster, "k"), [a]);
});

void test("a master that is killed while tasks run recovers them, and each is done once", async () => {
  await using cluster = await startCluster();
  const one = await cluster.addService("one");
  for (let at = 0; at < 40; at++) await cluster.put(one, `k${at}`, `value ${at}`);
  const two = await cluster.addService("two");
  const [a, b] = [await one.segment(), await two.segment()];
  const ids: string[] = [];
  for (let at = 0; at < 40; at++)
    ids.push(await submit(cluster, "move", { key: `k${at}`, source_segment: a, target_segments: [b], task_executor: "two", max_retries: 100 }));
  await cluster.master.kill();
  await sleep(300);
  await cluster.master.start();
  for (const [at, id] of ids.entries()) {
    const task = await ended(cluster, id);
    assert.equal(task.state, "succeeded", task.last_error);
    assert.deepEqual(await segmentsOf(cluster, `k${at}`), [b]);
    // The route remembers what was moved before the kill; its owner reconnects a moment later.
    await until("it is read", async () => ((await value(one, `k${at}`)) === `value ${at}` ? true : undefined));
  }
});

void test("among several masters the serving one is used, whichever is named first", async () => {
  await using cluster = await startCluster({ before: "127.0.0.1:1,127.0.0.1:2," });
  const [one, two] = [await cluster.addService("one"), await cluster.addService("two")];
  await cluster.put(one, "k", "value");
  const [held = ""] = await segmentsOf(cluster, "k");
  const other = held === (await one.segment()) ? await two.segment() : await one.segment();
  const task = await ended(cluster, await submit(cluster, "move", { key: "k", source_segment: held, target_segments: [other], task_executor: "two" }));
  assert.deepEqual([task.state, task.attempts], ["succeeded", 1], task.last_error);
});
