// One suite over the three backends of the admin server's records: a file, etcd and redis.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { type TestContext, test } from "node:test";
import { endWithUs } from "@svc/harness/children.ts";
import { startEtcd } from "@svc/harness/etcd.ts";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { needs } from "@svc/harness/needs.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { until } from "@svc/harness/until.ts";
import { Numbers } from "../src/metadata/numbers.ts";
import { openRecords } from "../src/metadata/open.ts";
import type { Records } from "../src/metadata/records.ts";
import { startCluster } from "./cluster.ts";

/** Opens further servers' views of the same backend; a file allows only one server at a time. */
type Backend = { open(): Records; readonly isShared: boolean } & AsyncDisposable;

const open = (text: string, folder = "") => openRecords({ setting: "store_admin.metadata", text, folder, namespace: "test" });

function embedded(): Backend {
  const folder = makeHome();
  return { isShared: false, open: () => open("embedded", folder), [Symbol.asyncDispose]: async () => removeHome(folder) };
}

async function etcd(): Promise<Backend> {
  const server = await startEtcd();
  const text = `etcd://${server.endpoints.map((url) => new URL(url).host).join(";")}`;
  return { isShared: true, open: () => open(text), [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}

async function redis(): Promise<Backend> {
  const folder = makeHome();
  const [port] = await freePorts(1);
  const flags = ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder, "--requirepass", "a b:c"];
  const child = spawn("redis-server", flags, { stdio: "ignore" });
  endWithUs(child);
  const text = `redis://:a%20b%3Ac@127.0.0.1:${port}/3`;
  await until("redis", async () => {
    const records = open(text);
    const isThere = await records.get("x").then(
      () => true,
      () => undefined,
    );
    await records.close();
    return isThere;
  });
  return {
    isShared: true,
    open: () => open(text),
    async [Symbol.asyncDispose]() {
      const ended = once(child, "exit");
      child.kill("SIGKILL");
      await ended;
      removeHome(folder);
    },
  };
}

for (const [name, start, programs] of [
  ["the embedded file", embedded, []],
  ["etcd", etcd, ["etcd"]],
  ["redis", redis, ["redis-server"]],
] as const) {
  const suite = (what: string, run: (backend: Backend, context: TestContext) => Promise<void>) =>
    test(`${name}: ${what}`, needs(...programs), async (context) => {
      await using backend = await start();
      await run(backend, context);
    });

  void suite("a change is made at the version that was read, and refused at any other", async (backend) => {
    const records = backend.open();
    assert.equal(await records.get("a"), undefined);
    const first = (await records.put("a", "1", 0n)) ?? assert.fail("not written");
    assert.ok(first > 0n);
    assert.deepEqual(await records.get("a"), { key: "a", value: "1", version: first });
    assert.equal(await records.put("a", "2", 0n), undefined, "it is there");
    const second = (await records.put("a", "zwei\0 ☃\r\n", first)) ?? assert.fail("not written");
    assert.ok(second > first);
    assert.equal(await records.put("a", "3", first), undefined);
    assert.deepEqual(await records.get("a"), { key: "a", value: "zwei\0 ☃\r\n", version: second });
    assert.equal(await records.delete("a", first), false);
    assert.equal(await records.delete("none", 0n), false);
    assert.equal(await records.delete("a", second), true);
    assert.equal(await records.get("a"), undefined);
    const third = (await records.put("a", "4", 0n)) ?? assert.fail("not written");
    assert.ok(third > second, "a version never comes back");
    await records.close();
  });

  void suite("a list has the keys below a prefix in order, and no others", async (backend) => {
    const records = backend.open();
    for (const key of ["b/2", "b/10", "b/1", "a/1", "b", "c/1", "b/*"]) assert.ok((await records.put(key, `of ${key}`, 0n)) !== undefined);
    assert.deepEqual(
      (await records.list("b/")).map(({ key, value }) => [key, value]),
      [
        ["b/*", "of b/*"],
        ["b/1", "of b/1"],
        ["b/10", "of b/10"],
        ["b/2", "of b/2"],
      ],
    );
    assert.deepEqual(await records.list("none/"), []);
    await records.close();
  });

  void suite("of concurrent changes exactly one is made, and each number is given once", async (backend) => {
    const views = backend.isShared ? [backend.open(), backend.open()] : [backend.open()];
    const view = (at: number) => views[at % views.length] as Records;
    const outcomes = await Promise.all(Array.from({ length: 8 }, (_, at) => view(at).put("k", String(at), 0n)));
    assert.equal(outcomes.filter((version) => version !== undefined).length, 1);
    const numbers = views.map((each) => new Numbers(each, "task"));
    const taken = await Promise.all(Array.from({ length: 20 }, (_, at) => (numbers[at % numbers.length] as Numbers).take()));
    assert.deepEqual(
      taken.sort((a, b) => a - b),
      Array.from({ length: 20 }, (_, at) => at + 1),
    );
    await Promise.all(views.map((each) => each.close()));
    const again = backend.open();
    assert.equal(await new Numbers(again, "task").last(), 20);
    assert.equal(await new Numbers(again, "task").take(), 21);
    assert.equal(await new Numbers(again, "other").take(), 1);
    await again.close();
  });
}

void test("an invalid backend is refused with the setting's name, and no password is shown", () => {
  for (const text of ["", "sqlite", "etcd://", "etcd://host", "redis://", "redis://:secret@h/x", "http://h:1"])
    assert.throws(
      () => open(text),
      (error: Error) => /setting store_admin\.metadata: expected embedded, etcd/.test(error.message) && !error.message.includes("secret"),
    );
});

void test("an admin server whose etcd does not answer refuses with 500, uses no number, and continues once it answers", needs("etcd"), async () => {
  await using server = await startEtcd();
  const [member] = server.members;
  assert.ok(member !== undefined);
  const where = `--store_admin.metadata=etcd://${new URL(member.url).host}`;
  await using cluster = await startCluster({ admin: [where] });
  const request = { authority: "a", tenant: "default", key: "k", source_segment: "s", target_segments: ["x"], task_executor: "e" };
  const post = () => cluster.ask("POST", "/v1/route-migrations/copy", request);
  assert.equal((await post()).body.task_id, "route-migration-1");
  await member.kill();
  const refused = await post();
  assert.deepEqual([refused.status, Object.keys(refused.body)], [500, ["error"]]);
  assert.equal((await cluster.ask("GET", "/v1/route-migrations")).body.count, 1);
  assert.equal((await cluster.ask("GET", "/healthz")).status, 200);
  await member.start();
  const taken = await until("an answer", async () => {
    const answer = await post();
    return answer.status === 200 ? answer : undefined;
  });
  assert.equal(taken.body.task_id, "route-migration-2");
  // Another home and another server continue with the numbers in etcd.
  await using other = await startCluster({ admin: [where] });
  assert.equal((await other.ask("POST", "/v1/route-migrations/copy", request)).body.task_id, "route-migration-3");
  await using apart = await startCluster({ admin: [where, "--namespace=other"] });
  const first = await apart.ask("POST", "/v1/route-migrations/copy", request);
  assert.deepEqual([first.body.task_id, first.body.namespace], ["route-migration-1", "other"]);
});
