// Watches of etcd miss nothing and repeat nothing, across cuts, kills, stopped members, compaction and a recreated store.
import assert from "node:assert/strict";
import { test } from "node:test";
import { startEtcd, type TestEtcd } from "@svc/harness/etcd.ts";
import { needs } from "@svc/harness/needs.ts";
import { startRelay } from "@svc/harness/relay.ts";
import { until } from "@svc/harness/until.ts";
import { type Etcd, openEtcd } from "../src/etcd/client.ts";
import type { WatchOptions } from "../src/etcd/watch.ts";

const patient = { attemptMs: 10_000, callMs: 60_000 };

/** Records what a watcher reports, and how often it lists or is interrupted. */
function follow(etcd: Etcd, prefix: string, options: Partial<WatchOptions> = {}) {
  const known = new Map<string, string>();
  const values: string[] = [];
  let lists = 0;
  let interruptions = 0;
  const watch = etcd.watch(prefix, {
    onAll(entries) {
      lists++;
      known.clear();
      for (const { key, value } of entries) known.set(key, value);
    },
    onEvents(events) {
      for (const event of events) {
        if (event.type === "delete") known.delete(event.key);
        else {
          known.set(event.key, event.entry.value);
          values.push(event.entry.value);
        }
      }
    },
    onInterrupted: () => interruptions++,
    ...options,
  });
  const has = (key: string, value: string | undefined) => until(`${key} is ${value}`, () => (known.get(key) === value ? true : undefined), 5);
  return {
    watch,
    known,
    values,
    has,
    current: () => until("the watch is current", () => watch.isCurrent || undefined, 5),
    lists: () => lists,
    interruptions: () => interruptions,
  };
}

async function open(server: TestEtcd) {
  const writer = openEtcd({ endpoints: server.endpoints, ...patient });
  const reader = openEtcd({ endpoints: server.endpoints, attemptMs: 1_000, callMs: 60_000, checkMs: 200 });
  return {
    writer,
    reader,
    async [Symbol.asyncDispose]() {
      await Promise.all([writer.close(), reader.close()]);
    },
  };
}

void test("a watcher sees the existing keys, then each change below its prefix in order, and nothing else", needs("etcd"), async () => {
  await using server = await startEtcd();
  await using clients = await open(server);
  await clients.writer.put("w/a", "before");
  const seen = follow(clients.reader, "w/");
  await seen.current();
  assert.deepEqual([...seen.known], [["w/a", "before"]]);
  await clients.writer.put("elsewhere", "x");
  for (let index = 0; index < 50; index++) await clients.writer.put("w/b", String(index));
  await clients.writer.delete("w/a");
  await seen.has("w/a", undefined);
  assert.deepEqual(
    seen.values,
    Array.from({ length: 50 }, (_, index) => String(index)),
  );
  assert.equal(seen.lists(), 1);
  const behind = follow(clients.reader, "w/", { fromRevision: seen.watch.revision - 3n });
  await until("the last changes", () => (behind.values.length === 2 ? true : undefined), 5);
  assert.deepEqual([behind.values, behind.lists()], [["48", "49"], 0]);
});

void test("a watcher whose connection is cut, renewed or stalled misses nothing and sees nothing twice", needs("etcd"), async () => {
  await using server = await startEtcd();
  await using relay = await startRelay(Number(new URL(server.endpoints[0] as string).port));
  await using clients = await open(server);
  const through = openEtcd({ endpoints: [`http://127.0.0.1:${relay.port}`], attemptMs: 1_000, callMs: 60_000, checkMs: 200 });
  const seen = follow(through, "w/", { renewMs: 300 });
  await seen.current();
  for (let index = 0; index < 60; index++) {
    if (index % 20 === 10) relay.cutAll();
    if (index === 35) relay.stalled = true;
    await clients.writer.put("w/k", String(index));
    if (index === 55) relay.stalled = false;
  }
  await seen.has("w/k", "59");
  assert.deepEqual(
    seen.values,
    Array.from({ length: 60 }, (_, index) => String(index)),
  );
  assert.equal(seen.lists(), 1);
  await through.close();
});

void test("a watcher continues with another member when its own is killed or stopped, and misses nothing", needs("etcd"), async () => {
  await using server = await startEtcd(3);
  await using clients = await open(server);
  const seen = follow(clients.reader, "w/");
  await seen.current();
  const [first, second] = server.members;
  const expected: string[] = [];
  const write = async (value: string) => {
    // The cluster may have to elect a leader first. A value that was written twice still counts as seen.
    await clients.writer.put("w/k", value);
    expected.push(value);
  };
  await write("one");
  await seen.has("w/k", "one");
  await first?.kill();
  await write("two");
  await seen.has("w/k", "two");
  await first?.start();
  await server.healthy();
  await second?.freeze();
  await write("three");
  await seen.has("w/k", "three");
  second?.thaw();
  assert.deepEqual([...new Set(seen.values)], expected);
});

void test("a watcher that was away while etcd compacted its history lists again and knows the present keys", needs("etcd"), async () => {
  await using server = await startEtcd();
  await using relay = await startRelay(Number(new URL(server.endpoints[0] as string).port));
  await using clients = await open(server);
  const through = openEtcd({ endpoints: [`http://127.0.0.1:${relay.port}`], attemptMs: 500, callMs: 60_000, checkMs: 200 });
  await clients.writer.put("w/gone", "x");
  const seen = follow(through, "w/");
  await seen.current();
  relay.stalled = true;
  relay.cutAll();
  await clients.writer.delete("w/gone");
  const revision = await clients.writer.put("w/k", "now");
  const compact = { method: "POST", body: JSON.stringify({ revision: String(revision), physical: true }) };
  assert.ok((await fetch(`${server.endpoints[0]}/v3/kv/compaction`, compact)).ok);
  relay.stalled = false;
  relay.cutAll();
  await seen.has("w/k", "now");
  assert.deepEqual([[...seen.known], seen.lists()], [[["w/k", "now"]], 2]);
  await through.close();
});

void test("a watcher of an etcd that was recreated empty learns that there are no keys", needs("etcd"), async () => {
  await using server = await startEtcd();
  await using clients = await open(server);
  for (let index = 0; index < 10; index++) await clients.writer.put("w/k", String(index));
  const seen = follow(clients.reader, "w/");
  await seen.current();
  await server.members[0]?.wipe();
  await seen.has("w/k", undefined);
  await clients.writer.put("w/new", "x");
  await seen.has("w/new", "x");
});
